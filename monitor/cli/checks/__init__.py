"""What `gpuferry doctor` looks at: each module yields findings, and touches nothing it looks at."""

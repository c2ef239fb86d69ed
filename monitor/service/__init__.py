"""What any daemon needs: log lines, systemd, its private folder, waiting that loses nothing."""

"""API server processes: started or adopted, watched, replaced."""

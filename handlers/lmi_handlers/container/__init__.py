"""The settings of a DJLServing container: its command line, environment variables, files and folders."""

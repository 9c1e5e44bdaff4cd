"""What every request passes: connections, intake, problems, tracing."""

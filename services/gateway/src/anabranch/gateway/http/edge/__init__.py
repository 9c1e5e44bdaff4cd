"""The layers around every request: connections, intake, problems, tracing."""

"""The controller: decides what the streams are and has it performed."""

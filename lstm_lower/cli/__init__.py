"""The command line, `lstm-lower`."""

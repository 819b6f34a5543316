"""The command line: parse options, run one thing, hand its result to the report."""

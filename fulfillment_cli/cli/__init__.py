"""The command line: parse options, run one flow, hand what it did to the report."""

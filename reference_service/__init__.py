"""The reference ledger of fulfil: stock, reservations and shipments behind a small HTTP API.

It is a separate program (``python -m reference_service``) that imports nothing of the command
line tool; JSON over HTTP is the whole contract between the two, so either can be replaced.

    __main__    command line, start-up, signals, the one line on stdout
    server      the listening socket, connections in hand, stopping
    handler     HTTP/1.1: framing, limits, Host and token checks
    routes      what each path answers
    protocol    strict reading of JSON and of requests; fingerprints
    ledger      claims, effects and verdicts as transactions
    database    opening, creating and recognising the SQLite file
    faults      the fault switches and the fixture they come from
    locking     one service for each database
    errors      what stops a start, what refuses a request
    parent      dying with the process that started us
"""

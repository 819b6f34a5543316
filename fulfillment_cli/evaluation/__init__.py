"""How often a model's answers are right, refused, or wrong and accepted all the same.

``python -m fulfillment_cli.evaluation`` asks the configured model; nothing is reserved or saved.
"""

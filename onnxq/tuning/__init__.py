"""Tuning: what each part of a model costs in accuracy and in time, measured, and what follows.

    evaluator = Evaluator.of(model, samples)     measures mappings: Score = evaluator(mapping)
    times_of(evaluator, mappings)                what each node takes in float and in integers
    sensitivity_of(evaluator, mapping, groups)   what each group of nodes costs alone

Every stage is a value that can be printed, compared and saved. Timings are taken first and kept in
the Journal; given them, everything else is the same on every run and with any number of workers.
"""

"""Tuning: what each part of a model costs in accuracy and in time, measured, and what follows.

    Evaluator(subject, samples, ...)    measures mappings: score = evaluator(mapping)
    measure_times(evaluator)            what each node takes in float and in each precision
    sensitivity_of(evaluations, ...)    what each group of nodes costs alone

Every stage is a value that can be printed, compared and saved. Timings are taken first and kept in
the Journal; given them, everything else is the same on every run and with any number of workers.
"""

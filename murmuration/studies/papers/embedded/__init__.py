"""Embedded ensembles: members inside one network, by width, number and regime."""

"""Words that make a command quick."""

SMALL = ("--net", "mlp", "--members", "2", "--epochs", "1", "--engine", "loop")

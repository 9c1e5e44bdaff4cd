"""The decisions of the checks: pure functions from facts to a finding, and the facts they need."""

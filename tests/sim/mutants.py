"""Members with a known fault put back in: the simulation must not let any of them live.

Each is one patch on the production code, made for the time of a run; what it repeats is in its docstring.
"""

from sim import mutants_offsets, mutants_sessions
from sim.mutant import KILLERS, MUTANTS, OWN, Mutant, main, seeds_until_killed

__all__ = ["KILLERS", "MUTANTS", "OWN", "Mutant", "main", "mutants_offsets", "mutants_sessions", "seeds_until_killed"]

"""What is probably wrong: of one tensor, and of everything that came from one implementation.

came       what came for a case; a guess, and whether it gives what came
forms      another shape or dtype
numbers    factors, shifts: what shows in one tensor
places turning gains channels distances logits knobs parts derivative    guesses by what they are about
probes     the near misses stored beside the cases
whole      which guess is named
"""

from peref.golden.diagnose.came import Trap
from peref.golden.diagnose.probes import of_probes
from peref.golden.diagnose.whole import diagnosed, likely
from peref.golden.diagnose.words import nested, rebuilt

__all__ = ["Trap", "diagnosed", "likely", "nested", "of_probes", "rebuilt"]

"""Question 3: the interaction between members during training, none or repulsion in a space. See README.md.

Members interact only through their features in a space. The repulsion gives each member one cotangent, the direction in
which its features should not go, and the member backpropagates it through its own network in the same backward pass as
its loss. The features of the other members are held constant.
"""

# ruff: noqa: F401 - names to be imported from here
from murmuration.core.coupling.estimators import Interaction
from murmuration.core.coupling.input_gradients import InputGradientSpace
from murmuration.core.coupling.repulsion import COUPLINGS, Coupling, Repulsion
from murmuration.core.coupling.space import Space, SpaceInputs
from murmuration.core.coupling.spaces import FeatureSpace, OutputPrior, OutputSpace, WeightSpace

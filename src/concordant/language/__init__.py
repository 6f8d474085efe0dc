"""Text and Python operators to subscriptions, and their check against schemas.

The grammar is loaded at the first `parse`, not at import.
"""

from concordant.language.builder import emit, subscription, topic
from concordant.language.check import check, checked, derived_topics
from concordant.language.parse import parse
from concordant.model.emission import depths

__all__ = ["check", "checked", "depths", "derived_topics", "emit", "parse", "subscription", "topic"]

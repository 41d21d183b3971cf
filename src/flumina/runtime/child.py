"""Keep what an inner worker knows of one child."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any

from flumina.model.order import START, Point
from flumina.program.definition import Join
from flumina.runtime.key_progress import NOTHING
from flumina.runtime.messages import Cause, Response
from flumina.runtime.topology import ChildShape


class Child:
    """The parent's view of one child."""

    def __init__(self, shape: ChildShape) -> None:
        self.shape = shape
        self.responses: deque[Response] = deque()
        self.state: Any = NOTHING
        """The child's state while the parent has it; of a child that hands over, its stored state."""
        self.answered = START
        """Up to where a child that hands over has contributed."""
        self.started = False
        """Whether the child was given its first state."""
        self.settled: Mapping[Cause, Point] = {}
        self.quiet = START

    def collect(self, point: Point) -> bool:
        """Consume the child's responses for a point; return whether they are complete."""
        join = self.shape.contribution
        if join is None:
            if self.state is NOTHING and self.responses:
                response = self.responses.popleft()
                assert response.point == point, f"{self.shape.id} answered {response.point}, not {point}"
                self.state, self.settled, self.quiet = response.state, response.settled, response.quiet
            return self.state is not NOTHING
        while self.responses and self.responses[0].point <= point:
            self.contribute(join, self.responses.popleft())
        return self.answered >= point

    def contribute(self, join: Join, response: Response) -> None:
        """Join the contribution of a child that hands over to its stored state."""
        if self.state is NOTHING:
            self.state = response.state
        elif response.state is not None:
            self.state = join.unite(self.state, response.state)
        self.answered, self.settled, self.quiet = response.point, response.settled, response.quiet

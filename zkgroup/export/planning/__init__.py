"""What is to be exported: from what ZooKeeper, the brokers and the lake tell to a plan.

``request`` (what is asked for), ``bounds`` (``--from``, ``--until``), ``group`` (what ZooKeeper and the brokers
tell), ``plan`` with ``beginnings`` (pure: facts → plan, and what is refused), ``begun`` (pure: beginnings that move
as logs lose messages) and ``passing_over`` (what is told of it), ``filling`` (what a backfill takes), ``renamed``
(what lies elsewhere than it was put), ``waiting`` (behind open transactions), ``run_plan`` (all of it, as a run's
plan).
"""

"""What the deployment on Ray Serve is made with."""

from courant.serving.ray_serve import QUEUE_S, Served


def test_a_busy_replica_is_waited_for():
    # Ray pickles the router's class when the deployment is defined: later changes do not reach it.
    config = Served._deployment_config.request_router_config
    router = config.get_request_router_class()
    assert router.queue_len_response_deadline_s == QUEUE_S
    assert router.max_queue_len_response_deadline_s == QUEUE_S

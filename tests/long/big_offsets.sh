#!/bin/bash
# limit: 900
# Tensors of more than 2^31 elements.
exec "$BUILD/tests/long/t_big_offsets"

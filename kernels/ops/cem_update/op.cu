// The CUDA side of the update.

#include "op.h"

// The CUDA side of the LLTM cell.

#include "op.h"

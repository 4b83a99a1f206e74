// The CPU side of the operator whose folder is searched for headers, and its schemas.

#include "cpu.h"
#include "op.h"

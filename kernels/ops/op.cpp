// The CPU library of one operator. Its folder is on the include path, and has the headers
// below.

#include "cpu.h"
#include "op.h"

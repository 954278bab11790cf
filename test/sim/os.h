/* os.h - the table zke_os of the simulated host */
#ifndef ZKE_SIM_OS_H
#define ZKE_SIM_OS_H

#include "zkembed.h"

extern const zke_os os_simulated;

#endif

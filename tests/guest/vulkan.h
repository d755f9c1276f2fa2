/* Vulkan as a test of the guest: a real driver stack made for glibc (loader, driver, worker threads
 * of its own), there without a GPU when the driver is Mesa's lavapipe.
 */
#ifndef ZIGCUDA_TEST_VULKAN_H
#define ZIGCUDA_TEST_VULKAN_H

#include "drivers/guest/guest.h"

/* Fills one buffer and copies it to another on the device's queue; checks every byte, `turns`
 * times. NULL when all went well, else the step that did not. `device` gets the name, *threads
 * how many this process then has. */
const char *vulkan_fill(void *lib, u32 turns, char device[256], u32 *threads);

#endif

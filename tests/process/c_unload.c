// SPDX-License-Identifier: Apache-2.0
//
// Loads libxylem.so, closes it while a runtime exists, and continues to use the runtime.
//
//   c_unload LIBRARY
#include <xylem/xylem_c.h>

#include <dlfcn.h>
#include <stdio.h>

int main(int argc, char** argv) {
  void* const library = argc == 2 ? dlopen(argv[1], RTLD_NOW | RTLD_LOCAL) : NULL;
  if (library == NULL) return 2;
  xylem_status (*create)(const xylem_options*, xylem_runtime**);
  xylem_communicator* (*world)(xylem_runtime*);
  xylem_status (*barrier)(const xylem_communicator*, xylem_work**);
  void (*destroy)(xylem_runtime*);
  *(void**)&create = dlsym(library, "xylem_runtime_create");
  *(void**)&world = dlsym(library, "xylem_runtime_world");
  *(void**)&barrier = dlsym(library, "xylem_barrier");
  *(void**)&destroy = dlsym(library, "xylem_runtime_destroy");
  xylem_runtime* runtime = NULL;
  if (create(NULL, &runtime) != XYLEM_OK) return 3;
  if (dlclose(library) != 0) return 4;
  const xylem_status status = barrier(world(runtime), NULL);
  destroy(runtime);
  return status == XYLEM_OK ? 0 : 5;
}

# SPDX-License-Identifier: Apache-2.0
#
# Finds nvcc, which compiles the device kernels, and the header cuda.h beside it. They are those of a
# CUDA toolkit, those that tools/setup has installed, or those of PyPI's packages in the environment
# of Python. Sets XYLEM_NVCC, its flags XYLEM_NVCC_FLAGS, XYLEM_CUDA_INCLUDE, and XYLEM_WITH_CUDA.
# No library of CUDA is needed: the driver is opened at run time.

# --fmad=false: a fused multiply-add rounds once where two operations round twice.
set(XYLEM_NVCC_FLAGS -std=c++20 -O3 --fmad=false)

if(NOT XYLEM_NVCC)
  find_package(Python3 QUIET COMPONENTS Interpreter)
  file(GLOB packaged  # nvidia/cu13 or nvidia/cuda_nvcc
    "${PROJECT_SOURCE_DIR}/build/cuda/lib/python3*/site-packages/nvidia/cu*/bin"
    "${Python3_SITELIB}/nvidia/cu*/bin")
  set(named ${CMAKE_CUDA_COMPILER} $ENV{CUDACXX})  # Each of the two may be empty.
  find_program(XYLEM_NVCC NAMES ${named} nvcc
    HINTS ENV CUDA_PATH PATHS /usr/local/cuda PATH_SUFFIXES bin DOC "CUDA compiler")
  find_program(XYLEM_NVCC nvcc PATHS ${packaged} NO_DEFAULT_PATH)
endif()
if(XYLEM_NVCC AND NOT XYLEM_WORKING_NVCC STREQUAL XYLEM_NVCC)
  # nvcc may be unusable, since its headers or a host compiler that it accepts are missing.
  execute_process(COMMAND "${XYLEM_NVCC}" ${XYLEM_NVCC_FLAGS} -ptx -x cu /dev/null -o /dev/null
    RESULT_VARIABLE failed OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(failed)
    message(STATUS "Xylem: ${XYLEM_NVCC} compiles nothing: ${output}")
  else()
    set(XYLEM_WORKING_NVCC "${XYLEM_NVCC}" CACHE INTERNAL "The nvcc that has compiled something")
  endif()
endif()

if(XYLEM_NVCC)
  file(REAL_PATH "${XYLEM_NVCC}" program)
  cmake_path(GET program PARENT_PATH programs)
  find_path(XYLEM_CUDA_INCLUDE cuda.h HINTS "${programs}/../include" DOC "Where cuda.h is")
endif()

set(found OFF)
if(XYLEM_CUDA_INCLUDE AND XYLEM_NVCC AND XYLEM_WORKING_NVCC STREQUAL XYLEM_NVCC)
  set(found ON)
elseif(NOT DEFINED XYLEM_WITH_CUDA)
  message(STATUS "Xylem: no CUDA compiler found, building without CUDA (XYLEM_WITH_CUDA=OFF)")
endif()
option(XYLEM_WITH_CUDA "Build for CUDA memory" ${found})
if(XYLEM_WITH_CUDA AND NOT found)
  message(FATAL_ERROR "XYLEM_WITH_CUDA is ON, but there is no nvcc that works, or no cuda.h; set XYLEM_NVCC to one, or run tools/setup --check, which installs one")
endif()

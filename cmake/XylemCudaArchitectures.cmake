# SPDX-License-Identifier: Apache-2.0
#
# Selects the GPUs for which nvcc compiles the device kernels.

# Machine code runs on all GPUs of its generation with the same or a later minor number: 75 is Turing, 80 Ampere and
# Ada, 90 Hopper, 100 and 120 Blackwell. The kernels are limited by memory bandwidth, so code for more architectures
# would not make them faster, and nvcc needs seconds for each.
set(XYLEM_ALL_CUDA_ARCHITECTURES 75 80 90 100 120)

# xylem_cuda_code(RESULT REQUESTED CAPABILITIES OFFERED)
#
# Sets RESULT to nvcc's options for the REQUESTED architectures: `native`, `all`, or a list. `native` means the GPUs of
# this machine, whose CAPABILITIES are given ("9.0"). Architectures that nvcc has not OFFERED ("sm_75") are left out.
# The options always include the PTX of the oldest supported GPU, which drivers compile for all other GPUs, also future
# ones.
function(xylem_cuda_code result requested capabilities offered)
  set(architectures ${requested})
  if(requested STREQUAL "native")
    string(REGEX MATCHALL "[0-9]+\\.[0-9]" architectures "${capabilities}")
    list(TRANSFORM architectures REPLACE "\\." "")
    list(REMOVE_DUPLICATES architectures)
  elseif(requested STREQUAL "all")
    set(architectures ${XYLEM_ALL_CUDA_ARCHITECTURES})
  endif()
  set(options)
  foreach(architecture IN LISTS architectures)
    if(offered MATCHES "sm_${architecture}([^0-9a-z]|$)")
      list(APPEND options -gencode=arch=compute_${architecture},code=sm_${architecture})
    endif()
  endforeach()
  list(GET XYLEM_ALL_CUDA_ARCHITECTURES 0 oldest)
  list(APPEND options -gencode=arch=compute_${oldest},code=compute_${oldest})
  set(${result} ${options} PARENT_SCOPE)
endfunction()

# SPDX-License-Identifier: Apache-2.0
#
# For which GPUs nvcc compiles the device kernels.

# Machine code runs on all GPUs of its generation with the same or a later minor number: 75 is Turing, 80 Ampere and
# Ada, 90 Hopper, 100 and 120 Blackwell. These kernels wait for memory and gain nothing by code for more architectures,
# each of which takes nvcc seconds.
set(XYLEM_ALL_CUDA_ARCHITECTURES 75 80 90 100 120)

# xylem_cuda_code(RESULT REQUESTED CAPABILITIES OFFERED)
#
# The options of nvcc for what is REQUESTED: `native`, which are the GPUs with these CAPABILITIES ("9.0"), `all`, or a
# list. nvcc OFFERS machine code for some ("sm_75"). The PTX of the oldest GPU that is supported always comes along:
# drivers compile it for all other GPUs, the future ones among them.
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

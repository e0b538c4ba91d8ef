# SPDX-License-Identifier: Apache-2.0
#
# The GPUs for which nvcc compiles the device kernels (cmake/XylemCudaArchitectures.cmake).
cmake_minimum_required(VERSION 3.25)
include("${CMAKE_CURRENT_LIST_DIR}/../../cmake/XylemCudaArchitectures.cmake")

set(offered "sm_75\nsm_80\nsm_86\nsm_89\nsm_90\nsm_90a\nsm_100\nsm_103\nsm_120\nsm_121\n")
set(ptx "-gencode=arch=compute_75,code=compute_75")

# Each number in EXPECTED means machine code for this architecture.
function(expect requested capabilities expected)
  set(wanted)
  foreach(architecture IN LISTS expected)
    string(APPEND wanted "-gencode=arch=compute_${architecture},code=sm_${architecture} ")
  endforeach()
  xylem_cuda_code(options "${requested}" "${capabilities}" "${offered}")
  list(JOIN options " " options)
  if(NOT options STREQUAL "${wanted}${ptx}")
    message(SEND_ERROR "'${requested}' on '${capabilities}': ${options}, not ${wanted}${ptx}")
  endif()
endfunction()

expect(native "" "")                    # No GPU, or no driver.
expect(native "9.0\n" "90")
expect(native "9.0\n9.0\n" "90")
expect(native "8.9\n10.3\n" "89;103")
expect(native "13.0\n" "")              # nvcc does not support it; the driver compiles PTX.
expect(native "9.1\n" "")
expect(native "Failed to initialize NVML: Driver/library version mismatch\n" "")
expect(all "" "75;80;90;100;120")
expect(all "9.0\n" "75;80;90;100;120")
expect("80;90" "12.0\n" "80;90")

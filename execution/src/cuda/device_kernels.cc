// SPDX-License-Identifier: Apache-2.0
//
// The assembler copies the fat binary, whose path is XYLEM_FAT_BINARY, into the library's constant
// data.
#include "cuda/device_kernels.h"

asm(R"(
.pushsection .rodata
.balign 16
.globl xylem_device_kernels
.hidden xylem_device_kernels
xylem_device_kernels:
.incbin ")" XYLEM_FAT_BINARY R"("
.globl xylem_device_kernels_end
.hidden xylem_device_kernels_end
xylem_device_kernels_end:
.popsection
)");

namespace xylem::execution::cuda {

extern const std::byte kBegin[] asm("xylem_device_kernels");
extern const std::byte kEnd[] asm("xylem_device_kernels_end");

std::span<const std::byte> device_kernels() noexcept { return {kBegin, kEnd}; }

}  // namespace xylem::execution::cuda

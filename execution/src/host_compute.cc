// SPDX-License-Identifier: Apache-2.0
//
// The CPU's copies and reductions. Large outputs are written with non-temporal stores. Ordinary
// stores would first read the lines of the output into the cache, which would cost a third of the
// memory bandwidth.
#include "xylem/execution/host_compute.h"

#include "xylem/base/check.h"
#include "xylem/base/copy.h"

#include <algorithm>
#include <array>

namespace xylem::execution {
namespace {

constexpr std::size_t kLine = 64;

/// A reduction is computed in pieces of this size. A piece is small enough to stay in the
/// first-level cache until it is copied to its place. The CPU reads the sources of the next piece
/// while the stores of this copy are still on their way to memory.
constexpr std::size_t kPiece = 2048;

/// Computes the result piece by piece, and calls `put(offset, piece, length)` for each piece. The
/// pieces are computed in `memory` if it is not null, and otherwise in a buffer on the stack.
///
/// Each piece except the last ends on a cache-line boundary of `target`, if the element size allows
/// this. Otherwise non-temporal stores would write some lines in two parts, and such a line costs
/// as much as many lines that are written whole.
template <typename Put>
void reduce_by_pieces(const ComputeWork& work,
                      std::byte* memory,
                      const std::byte* target,
                      const Put& put) {
  const auto into_line = [target](std::uint64_t at) {
    return reinterpret_cast<std::uintptr_t>(target + at) % kLine;
  };
  alignas(kLine) std::array<std::byte, kPiece> aside;
  // A piece on the stack is always passed to `put` as a whole. So the first piece is shorter by
  // some elements, and all later pieces end on line boundaries.
  const std::uint64_t element = work.element_bytes;
  const std::uint64_t shorter = (into_line(0) + element - 1) / element * element;
  std::uint64_t length = memory == nullptr ? kPiece - shorter : kPiece;
  for (std::uint64_t at = 0, done = 0; at < work.bytes; length = kPiece) {
    length = std::min(length, work.bytes - at);
    work.reduce(memory != nullptr ? memory + at : aside.data(), work.sources.data(),
                work.sources.size(), length / element, work.finish);
    for (const void*& source : work.sources) {
      source = static_cast<const std::byte*>(source) + length;
    }
    at += length;
    const std::uint64_t ready = memory == nullptr || at == work.bytes ? at : at - into_line(at);
    put(done, memory != nullptr ? memory + done : aside.data(), ready - done);
    done = ready;
  }
}

void put_non_temporal(std::byte* target, const std::byte* piece, std::uint64_t length) noexcept {
  copy_piece_non_temporal(target, piece, length);
}

/// Writes the result to `target` and to `shared`, to at least one of them with non-temporal stores.
void reduce_to_both(const ComputeWork& work) noexcept {
  if (!work.shared_non_temporal) {
    reduce_by_pieces(work, work.shared, work.target,
                     [&](std::uint64_t at, const std::byte* piece, std::uint64_t length) {
                       put_non_temporal(work.target + at, piece, length);
                     });
    return fence_non_temporal();
  }
  const auto put_target = work.non_temporal ? &copy_piece_non_temporal : &copy_bytes;
  // `shared` begins on a line boundary, but `target` may begin anywhere. So the pieces may fit the
  // lines of only one of the two: of `target` if it is written with non-temporal stores, and
  // otherwise of `shared`.
  const std::byte* const lines_of = work.non_temporal ? work.target : work.shared;
  reduce_by_pieces(work, nullptr, lines_of,
                   [&](std::uint64_t at, const std::byte* piece, std::uint64_t length) {
                     put_non_temporal(work.shared + at, piece, length);
                     put_target(work.target + at, piece, length);
                   });
  fence_non_temporal();
}

void reduce(const ComputeWork& work) noexcept {
  if (work.shared != nullptr) return reduce_to_both(work);
  if (!work.non_temporal) {
    return work.reduce(work.target, work.sources.data(), work.sources.size(),
                       work.bytes / work.element_bytes, work.finish);
  }
  reduce_by_pieces(work, nullptr, work.target,
                   [&](std::uint64_t at, const std::byte* piece, std::uint64_t length) {
                     put_non_temporal(work.target + at, piece, length);
                   });
  fence_non_temporal();
}

}  // namespace

void compute_on_host(const ComputeWork& work) noexcept {
  XYLEM_CHECK(work.shared == nullptr || work.kind == ComputeWork::Kind::reduce, work.bytes);
  const void* const source = work.sources.front();
  switch (work.kind) {
    case ComputeWork::Kind::copy:
      if (source != work.target) copy_to({work.target, work.non_temporal}, source, work.bytes);
      break;
    case ComputeWork::Kind::reduce: reduce(work); break;
    case ComputeWork::Kind::scale:
      work.scale(work.target, source, work.bytes / work.element_bytes, work.factor);
      break;
  }
}

}  // namespace xylem::execution

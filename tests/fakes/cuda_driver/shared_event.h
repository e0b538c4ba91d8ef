// SPDX-License-Identifier: Apache-2.0
//
// What processes know together of an event that they share: a page with two numbers. Each record
// gets a number, in any process. An event is done when its newest record is done.
#pragma once

#include <cstdint>
#include <memory>

namespace xylem::fake_cuda {

class SharedEvent {
 public:
  /// These return nullptr if the system has no memory. `open` takes the descriptor.
  static std::shared_ptr<SharedEvent> make();
  static std::shared_ptr<SharedEvent> open(int file);

  ~SharedEvent();
  SharedEvent(const SharedEvent&) = delete;
  SharedEvent& operator=(const SharedEvent&) = delete;

  int file() const noexcept { return file_; }
  /// Begins a record, and returns its number.
  std::uint64_t record();
  void complete(std::uint64_t record);
  /// The number of the newest record; 0 if there was none.
  std::uint64_t newest() const;
  bool is_done(std::uint64_t record) const;

 private:
  struct Page;
  SharedEvent(int file, Page* page) : file_(file), page_(page) {}
  static std::shared_ptr<SharedEvent> map(int file);

  int file_;
  Page* page_;
};

}  // namespace xylem::fake_cuda

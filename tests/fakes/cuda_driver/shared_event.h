// SPDX-License-Identifier: Apache-2.0
//
// The state of an event that processes share: a page with two numbers. Each record gets a number,
// in whichever process it is made. An event is complete when its newest record is complete.
#pragma once

#include <cstdint>
#include <memory>

namespace xylem::fake_cuda {

class SharedEvent {
 public:
  /// make() and open() return nullptr if the system has no memory. open() takes ownership of
  /// `file`.
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

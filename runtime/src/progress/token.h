// SPDX-License-Identifier: Apache-2.0
//
// Token: the proof that the calling thread holds the progress token (progress.h). A function that
// only the holder may call takes a Token, so a call without the token does not compile. A Token is
// an empty value and costs nothing. It is valid until the thread releases the progress token, so it
// is passed down and never stored.
#pragma once

#include <utility>

namespace xylem::runtime {

class Token {
  friend class Progress;
  Token() = default;
};

/// An object that only the token holder may use.
template <typename T>
class TokenGuarded {
 public:
  template <typename... Arguments>
  explicit TokenGuarded(Arguments&&... arguments)
      : object_(std::forward<Arguments>(arguments)...) {}

  T& get(Token /*token*/) noexcept { return object_; }

 private:
  T object_;
};

}  // namespace xylem::runtime

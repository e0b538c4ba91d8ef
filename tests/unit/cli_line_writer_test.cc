// SPDX-License-Identifier: Apache-2.0
//
// The output of ranks is written in whole lines.
#include "tools/src/run/line_writer.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace xylem::tools {
namespace {

TEST(LineWriter, LeadsEachLineByThePrefix) {
  LineWriter lines("[2] ");
  EXPECT_EQ(lines.feed("one\ntwo\n"), "[2] one\n[2] two\n");
}

TEST(LineWriter, KeepsTheRestOfALineUntilItEnds) {
  LineWriter lines("[0] ");
  EXPECT_EQ(lines.feed("be"), "");
  EXPECT_EQ(lines.feed("gin\nen"), "[0] begin\n");
  EXPECT_EQ(lines.feed("d"), "");
  EXPECT_EQ(lines.finish(), "[0] end\n");
  EXPECT_EQ(lines.finish(), "") << "nothing is printed twice";
}

TEST(LineWriter, KeepsEmptyLines) {
  LineWriter lines("> ");
  EXPECT_EQ(lines.feed("\n\n"), "> \n> \n");
}

TEST(LineWriter, CutsALineThatNeverEnds) {
  LineWriter lines("");
  const std::string endless(LineWriter::kLongestLine * 2 + 5, 'x');
  std::string out = lines.feed(endless);
  out += lines.finish();
  EXPECT_EQ(std::ranges::count(out, '\n'), 3);
  EXPECT_EQ(std::ranges::count(out, 'x'), static_cast<std::ptrdiff_t>(endless.size()));
}

}  // namespace
}  // namespace xylem::tools

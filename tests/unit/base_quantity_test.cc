// SPDX-License-Identifier: Apache-2.0
//
// Sizes, durations and bandwidths, printed and parsed.
#include "support/outcome.h"
#include "xylem/base/quantity.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <limits>
#include <random>
#include <string>
#include <string_view>

namespace xylem {
namespace {

using std::chrono::hours;
using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::minutes;
using std::chrono::nanoseconds;
using std::chrono::seconds;
using ::testing::HasSubstr;

constexpr std::uint64_t kKi = 1024;
constexpr std::uint64_t kMax = std::numeric_limits<std::uint64_t>::max();

std::uint64_t bytes_of(std::string_view text) {
  const auto result = parse_bytes(text);
  EXPECT_TRUE(result.is_ok()) << text << ": " << result.status().to_string();
  return result ? result->value : 0;
}

std::string bytes_error(std::string_view text) {
  const auto result = parse_bytes(text);
  EXPECT_EQ(result.code(), Code::invalid_argument) << text;
  return std::string(result.status().message());
}

nanoseconds duration_of(std::string_view text) {
  const auto result = parse_duration(text);
  EXPECT_TRUE(result.is_ok()) << text << ": " << result.status().to_string();
  return result ? *result : nanoseconds(-1);
}

TEST(ParseBytes, ReadsEveryUnitInAnyCase) {
  for (const char* text : {"64K", "64k", "64KB", "64kb", "64KiB", "64kib", "64 KiB", " 64K\t"}) {
    EXPECT_EQ(bytes_of(text), 64 * kKi) << text;
  }
  EXPECT_EQ(bytes_of("3M"), 3 * kKi * kKi);
  EXPECT_EQ(bytes_of("2g"), 2 * kKi * kKi * kKi);
  EXPECT_EQ(bytes_of("1TiB"), kKi * kKi * kKi * kKi);
}

TEST(ParseBytes, ReadsPlainNumbers) {
  EXPECT_EQ(bytes_of("0"), 0U);
  EXPECT_EQ(bytes_of("4096"), 4096U);
  EXPECT_EQ(bytes_of("8b"), 8U);
  EXPECT_EQ(bytes_of("8 B"), 8U);
  EXPECT_EQ(bytes_of("007"), 7U);
}

TEST(ParseBytes, ReadsFractionsOfAUnit) {
  EXPECT_EQ(bytes_of("1.5M"), kKi * kKi * 3 / 2);
  EXPECT_EQ(bytes_of("0.5 KiB"), 512U);
  EXPECT_EQ(bytes_of("1.001K"), 1025U);  // 1025.024, rounded to the nearest.
  EXPECT_EQ(bytes_of("0.99999999999999999999K"), kKi);
}

TEST(ParseBytes, ReachesTheLargestValueAndNoFurther) {
  EXPECT_EQ(bytes_of("18446744073709551615"), kMax);
  EXPECT_EQ(bytes_of("16777215T"), 16777215 * kKi * kKi * kKi * kKi);
  for (const char* text : {"18446744073709551616", "16777216T", "16777215.9999999999999T",
                           "99999999999999999999999999", "18014398509481984K"}) {
    EXPECT_THAT(bytes_error(text), HasSubstr("2^64")) << text;
    EXPECT_THAT(bytes_error(text), HasSubstr(text));
  }
}

TEST(ParseBytes, RefusesGarbageNamingItAndTheRule) {
  for (const char* text :
       {"",     " ",     "K",    "-1",  "+1",    "1..5K", "1.K", ".5K", "1,5K",   "64Q",
        "64KK", "64kbi", "0x10", "1e3", "64K 1", "12 34", "nan", "inf", "1.5.5M", "64P"}) {
    EXPECT_THAT(bytes_error(text), HasSubstr("\"" + std::string(text) + "\"")) << text;
    EXPECT_THAT(bytes_error(text), HasSubstr("64K")) << text;
  }
  const std::string_view with_zero("64\0K", 4);
  EXPECT_EQ(parse_bytes(with_zero).code(), Code::invalid_argument);
}

TEST(ParseBytes, RefusesAFractionOfAByte) {
  EXPECT_THAT(bytes_error("1.5"), HasSubstr("whole number"));
  EXPECT_THAT(bytes_error("1.5B"), HasSubstr("add a unit"));
}

TEST(FormatBytes, UsesTheLargestUnitReached) {
  EXPECT_EQ(format_bytes({0}), "0 B");
  EXPECT_EQ(format_bytes({8}), "8 B");
  EXPECT_EQ(format_bytes({1023}), "1023 B");
  EXPECT_EQ(format_bytes({64 * kKi}), "64 KiB");
  EXPECT_EQ(format_bytes({kKi * kKi * 3 / 2}), "1.5 MiB");
  EXPECT_EQ(format_bytes({1024 * kKi * kKi * kKi * kKi}), "1024 TiB");
}

TEST(FormatBytes, ShowsRoundingByTwoDecimals) {
  EXPECT_EQ(format_bytes({1025}), "1.00 KiB");
  EXPECT_EQ(format_bytes({kKi * kKi - 1}), "1.00 MiB");
  EXPECT_EQ(format_bytes({25190998016}), "23.46 GiB");
  EXPECT_EQ(format_bytes({kMax}), "16777216.00 TiB");
}

TEST(FormatBytes, ExactFormsReadBackAsTheSameValue) {
  std::mt19937_64 random(20260131);
  for (int i = 0; i < 2000; ++i) {
    const Bytes value{random() >> (random() % 60) << (random() % 20)};
    const std::string text = format_bytes(value);
    const std::uint64_t back = bytes_of(text);
    const auto point = text.find('.');
    const bool rounded = point != std::string::npos && text.find(' ') - point == 3;
    if (!rounded) {
      EXPECT_EQ(back, value.value) << text;
    }
  }
}

TEST(ParseDuration, ReadsEveryUnit) {
  EXPECT_EQ(duration_of("7ns"), nanoseconds(7));
  EXPECT_EQ(duration_of("50us"), microseconds(50));
  EXPECT_EQ(duration_of("200ms"), milliseconds(200));
  EXPECT_EQ(duration_of("30 s"), seconds(30));
  EXPECT_EQ(duration_of("30min"), minutes(30));
  EXPECT_EQ(duration_of("1h"), hours(1));
  EXPECT_EQ(duration_of("0"), nanoseconds(0));
}

TEST(ParseDuration, TakesABareNumberAsSeconds) {
  EXPECT_EQ(duration_of("60"), seconds(60));
  EXPECT_EQ(duration_of("0.25"), milliseconds(250));
}

TEST(ParseDuration, RefusesGarbageNegativesAndMinutesWrittenM) {
  for (const char* text :
       {"", "-5s", "5m", "5 sec", "s", "1:30", "forever", "1.5.0s", "5s5", "1e3ms"}) {
    EXPECT_THAT(parse_duration(text), fails_as(Code::invalid_argument, "200ms")) << text;
  }
}

TEST(ParseDuration, RefusesWhatDoesNotFit) {
  EXPECT_EQ(duration_of("9223372036854775807ns"), nanoseconds::max());
  for (const char* text : {"9223372036854775808ns", "2562048h", "9999999999999999999999s"}) {
    EXPECT_THAT(parse_duration(text), fails_with("292 years")) << text;
  }
}

TEST(FormatDuration, UsesTheLargestUnitReached) {
  EXPECT_EQ(format_duration(nanoseconds(0)), "0 ns");
  EXPECT_EQ(format_duration(nanoseconds(1250)), "1.25 us");
  EXPECT_EQ(format_duration(milliseconds(200)), "200 ms");
  EXPECT_EQ(format_duration(seconds(30)), "30 s");
  EXPECT_EQ(format_duration(minutes(30)), "30 min");
  EXPECT_EQ(format_duration(seconds(90)), "1.5 min");
  EXPECT_EQ(format_duration(nanoseconds(1234567)), "1.23 ms");
  EXPECT_EQ(format_duration(nanoseconds(59'999'999'999)), "1.00 min");
}

TEST(FormatDuration, ShowsTheSignOfNegatives) {
  EXPECT_EQ(format_duration(microseconds(-1500)), "-1.5 ms");
  EXPECT_EQ(format_duration(nanoseconds::min()).front(), '-');
}

TEST(FormatBandwidth, KeepsFourDigits) {
  EXPECT_EQ(format_bandwidth({12.5}), "12.5 GB/s");
  EXPECT_EQ(format_bandwidth({0}), "0 GB/s");
  EXPECT_EQ(format_bandwidth({0.031253}), "0.03125 GB/s");
  EXPECT_EQ(format_bandwidth({450}), "450 GB/s");
  EXPECT_EQ(format_bandwidth({14400.4}), "14400 GB/s");
}

}  // namespace
}  // namespace xylem

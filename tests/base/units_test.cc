#include "base/units.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "base/error.h"

namespace spillway::units_test {
namespace {

using testing::HasSubstr;

TEST(ParseBytes, PowersOf1024And1000) {
  EXPECT_EQ(parse_bytes("640MiB", "x"), 671088640);
  EXPECT_EQ(parse_bytes("640M", "x"), 671088640);
  EXPECT_EQ(parse_bytes("1K", "x"), 1024);
  EXPECT_EQ(parse_bytes("1KB", "x"), 1000);
  EXPECT_EQ(parse_bytes("2GB", "x"), 2'000'000'000);
  EXPECT_EQ(parse_bytes("2GiB", "x"), i64{2} << 30);
  EXPECT_EQ(parse_bytes("7TB", "x"), 7'000'000'000'000);
  EXPECT_EQ(parse_bytes("1T", "x"), i64{1} << 40);
  EXPECT_EQ(parse_bytes("1.5G", "x"), 1610612736);
  EXPECT_EQ(parse_bytes("16g", "x"), i64{16} << 30);
  EXPECT_EQ(parse_bytes("12 B", "x"), 12);
  EXPECT_EQ(parse_bytes("0K", "x"), 0);
}

TEST(ParseBytes, RefusesWhatIsUnclearAndNamesTheFlag) {
  for (const char* text : {"", "640", "MiB", "1..5G", "1.5.2G", "-1G", "1 2G", "1Q", "1GiBs", " 1G", "9999999999999T", "8388608T", "1e3K",
                           "nanG", "0x10K", ".K", "99999999999999999999999B"}) {
    try {
      parse_bytes(text, "--device-memory");
      FAIL() << text;
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::usage);
      EXPECT_THAT(e.what(), HasSubstr("--device-memory"));
      EXPECT_THAT(e.what(), HasSubstr("640MiB"));
      EXPECT_THAT(e.what(), HasSubstr("\"" + std::string(text) + "\""));
    }
  }
}

TEST(ParseDuration, AllForms) {
  EXPECT_EQ(parse_duration_s("30s", "x"), 30);
  EXPECT_EQ(parse_duration_s("30m", "x"), 1800);
  EXPECT_EQ(parse_duration_s("2h", "x"), 7200);
  EXPECT_EQ(parse_duration_s("1d", "x"), 86400);
  EXPECT_EQ(parse_duration_s("1-12:00:00", "x"), 129600);
  EXPECT_EQ(parse_duration_s("01:02:03", "x"), 3723);
  EXPECT_EQ(parse_duration_s("0.5h", "x"), 1800);
}

TEST(ParseDuration, Refuses) {
  for (const char* text : {"", "30", "s", "1-2", "1:2", "1:60:00", "1:00:60", "a:b:c", "1-:00:00", "-1:00:00", "1:2:3:4", "5w", "1h30m"}) {
    EXPECT_THROW(parse_duration_s(text, "--timeout"), Error) << text;
  }
}

TEST(FormatBytes, FourDigitsAtMost) {
  EXPECT_EQ(format_bytes(0), "0 B");
  EXPECT_EQ(format_bytes(12), "12 B");
  EXPECT_EQ(format_bytes(1023), "1023 B");
  EXPECT_EQ(format_bytes(1024), "1.00 KiB");
  EXPECT_EQ(format_bytes(671088640), "640.0 MiB");
  EXPECT_EQ(format_bytes(1000 * kMiB), "1000 MiB");
  EXPECT_EQ(format_bytes(kGiB - 1), "1.00 GiB");
  EXPECT_EQ(format_bytes(kGiB * 5 / 2), "2.50 GiB");
  EXPECT_EQ(format_bytes(-kKiB), "-1.00 KiB");
  EXPECT_EQ(format_bytes(std::numeric_limits<i64>::max()), "8.00 EiB");
  EXPECT_EQ(format_bytes(std::numeric_limits<i64>::min()), "-8.00 EiB");
}

TEST(FormatBytes, WhatIsPrintedCanBeRead) {
  for (i64 bytes = 1; bytes < kGiB * 1024; bytes = bytes * 3 + 1) {
    const auto back = static_cast<double>(parse_bytes(format_bytes(bytes), "x"));
    // three digits are kept, so the error is at most half a unit of the third digit
    EXPECT_NEAR(back / static_cast<double>(bytes), 1, 0.006) << bytes;
  }
}

TEST(FormatDuration, UnitsAndLimits) {
  EXPECT_EQ(format_duration(0), "0 us");
  EXPECT_EQ(format_duration(25e-6), "25 us");
  EXPECT_EQ(format_duration(0.85), "850 ms");
  EXPECT_EQ(format_duration(0.9996), "1.0 s");
  EXPECT_EQ(format_duration(3.2), "3.2 s");
  EXPECT_EQ(format_duration(59.96), "1 min 00 s");
  EXPECT_EQ(format_duration(245), "4 min 05 s");
  EXPECT_EQ(format_duration(3599.9), "1 h 00 min");
  EXPECT_EQ(format_duration(3840), "1 h 04 min");
  EXPECT_EQ(format_duration(86399), "1 d 00 h");
  EXPECT_EQ(format_duration(2 * 86400 + 3 * 3600), "2 d 03 h");
  EXPECT_EQ(format_duration(-3.2), "-3.2 s");
  EXPECT_EQ(format_duration(std::numeric_limits<double>::quiet_NaN()), "?");
}

}  // namespace
}  // namespace spillway::units_test

#include "trainer/settings/text.h"
#include "trainer/settings/placement_settings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "tests/trainer/support_trainer.h"

namespace spillway::trainer::text_test {
namespace {

TEST(Text, NumbersMustBeWhole) {
  EXPECT_EQ(parse_integer("-12", "x"), -12);
  EXPECT_EQ(parse_number("3e-4", "x"), 3e-4);
  for (const char* bad : {"", "12a", "1.5", " 3", "0x10", "99999999999999999999"}) EXPECT_THROW(parse_integer(bad, "x"), Error) << bad;
  for (const char* bad : {"", "nan", "inf", "1e999", "1,5", "3e"}) EXPECT_THROW(parse_number(bad, "x"), Error) << bad;
  EXPECT_EQ(message_of([] { parse_integer("abc", "--steps"); }), "[--steps] expected a whole number, got \"abc\"");
}

TEST(Text, PrintedNumbersReadBackToTheSameBits) {
  for (const double value : {0.1, 1.0 / 3, 1e-8, 3e-4, 5e-324, std::numeric_limits<double>::max(), 0.0, 123456789.123456789}) {
    EXPECT_EQ(parse_number(print_number(value), "x"), value);
  }
}

TEST(Text, SizesNeedAUnitAndReadBackExactly) {
  EXPECT_THROW(parse_size("1000", "x"), Error);
  EXPECT_EQ(print_size(2 * kGiB), "2GiB");
  EXPECT_EQ(print_size(5'000'000'000), "5GB");
  for (const i64 bytes : {i64{0}, i64{1}, i64{1023}, i64{1'000'003}, 3 * kMiB + 1, 640 * kMiB, i64{100'000'000'000}, i64{1} << 62}) {
    EXPECT_EQ(parse_size(print_size(bytes), "x"), bytes) << print_size(bytes);
  }
}

TEST(Text, TimesReadBackExactly) {
  for (const i64 seconds : {1, 59, 60, 90, 3600, 3660, 129600}) EXPECT_EQ(parse_duration(print_duration(seconds), "x"), seconds);
  EXPECT_EQ(parse_duration("1-12:00:00", "x"), 36 * 3600);
  EXPECT_THROW(parse_duration("30", "x"), Error);
}

TEST(Text, DevicesAreTheCpuAndGpusByNumber) {
  for (const char* good : {"cpu", "cuda", "cuda:0", "cuda:12"}) EXPECT_EQ(parse_device(good, "--device"), good);
  for (const char* bad : {"", "gpu", "cuda:", "cuda:x", "cuda:-1", "cuda:99999", "cpu:0"})
    EXPECT_THAT(message_of([&] { parse_device(bad, "--device"); }), ::testing::HasSubstr("expected one of: cpu cuda cuda:N")) << bad;
}

TEST(Placement, OneTierIsTheWholeOfIt) {
  EXPECT_TRUE(parse_placement("auto", "x").automatic);
  for (const Tier tier : {Tier::device, Tier::host, Tier::nvme}) {
    const PlacementWish wish = parse_placement(std::string(offload::to_string(tier)), "x");
    EXPECT_EQ(wish.one_tier(), tier);
    EXPECT_TRUE(wish.uses(tier));
  }
  EXPECT_FALSE(parse_placement("auto", "x").uses(Tier::nvme));
}

TEST(Placement, BytesPerTier) {
  const PlacementWish wish = parse_placement("host=rest,device=2GiB", "x");
  EXPECT_EQ(wish.bytes, (std::array<i64, 3>{2 * kGiB, PlacementWish::kRest, 0}));
  EXPECT_EQ(wish.one_tier(), std::nullopt);
  EXPECT_EQ(print_placement(wish), "device=2GiB,host=rest");
  for (const char* text : {"auto", "nvme", "device=2GiB,host=rest", "device=1MiB,host=3GB,nvme=rest"}) {
    EXPECT_EQ(parse_placement(print_placement(parse_placement(text, "x")), "x"), parse_placement(text, "x")) << text;
  }
}

TEST(Placement, WhatIsNoPlacement) {
  for (const char* bad : {"", "gpu", "device=2GiB", "device=rest,host=rest", "device=2,host=rest", "device=2GiB,device=rest",
                          "device=2GiB,,host=rest", "device=2GiB,host=rest,", "cpu=2GiB,host=rest", "device", "host="}) {
    if (std::string(bad) == "device") continue;  // "device" by itself is valid
    EXPECT_THROW(parse_placement(bad, "--place-optimizer"), Error) << bad;
  }
  EXPECT_NE(message_of([] { parse_placement("gpu", "--place-optimizer"); }).find("[--place-optimizer] expected device, host, nvme, auto"),
            std::string::npos);
}

TEST(Scratch, PathAndSize) {
  EXPECT_EQ(parse_scratch("/scratch", "x"), (ScratchPath{"/scratch", std::nullopt}));
  EXPECT_EQ(parse_scratch("/scratch:500GiB", "x"), (ScratchPath{"/scratch", 500 * kGiB}));
  EXPECT_EQ(parse_scratch("/a:b/c", "x").path, "/a:b/c");
  EXPECT_EQ(parse_scratch("/a:b", "x").path, "/a:b");
  EXPECT_EQ(parse_scratch("/job:12/dir:1G", "x"), (ScratchPath{"/job:12/dir", kGiB}));
  EXPECT_THROW(parse_scratch("/scratch:500", "x"), Error);  // a number without a unit is not taken for a size
  EXPECT_THROW(parse_scratch(":1G", "x"), Error);
  EXPECT_EQ(print_scratch({"/s", 3 * kMiB}), "/s:3MiB");
}

TEST(Endurance, TerabytesWritten) {
  EXPECT_EQ(parse_endurance("600TBW", "x"), 600'000'000'000'000);
  EXPECT_EQ(parse_endurance("1.2PBW", "x"), 1'200'000'000'000'000);
  EXPECT_EQ(parse_endurance("0.5TBW", "x"), 500'000'000'000);
  for (const char* text : {"", "TBW", "600", "600TB", "600 TBW", "-1TBW", "0TBW", "infTBW", "nanTBW", "1e9PBW", "600tbw"})
    EXPECT_THROW(parse_endurance(text, "x"), Error) << text;
  for (const i64 bytes : {i64{600'000'000'000'000}, i64{1'234'567'890'123}, i64{150'000'000'000'000}})
    EXPECT_EQ(parse_endurance(print_endurance(bytes), "x"), bytes);
}

TEST(Cadence, StepsTimesAndEpochs) {
  using Unit = Cadence::Unit;
  EXPECT_EQ(parse_cadence("500", "x"), (Cadence{Unit::steps, 500}));
  EXPECT_EQ(parse_cadence("30m", "x"), (Cadence{Unit::seconds, 1800}));
  EXPECT_EQ(parse_cadence("1epoch", "x"), (Cadence{Unit::epochs, 1}));
  EXPECT_EQ(parse_cadence("2epochs", "x"), (Cadence{Unit::epochs, 2}));
  for (const char* bad : {"", "0", "0s", "epoch", "1.5epoch", "x", "-3"}) EXPECT_THROW(parse_cadence(bad, "x"), Error) << bad;
  for (const char* text : {"500", "30m", "1epoch", "90s"}) EXPECT_EQ(print_cadence(parse_cadence(text, "x")), text);
  EXPECT_EQ(parse_cadence("30m", "x"), Cadence{});
}

TEST(Resume, WordsAndPaths) {
  EXPECT_EQ(parse_resume("auto", "x").kind, Resume::Kind::automatic);
  EXPECT_EQ(parse_resume("must", "x").kind, Resume::Kind::must);
  EXPECT_EQ(parse_resume("runs/a/checkpoints/step-00000003", "x").path, "runs/a/checkpoints/step-00000003");
  EXPECT_THROW(parse_resume("", "x"), Error);
  for (const char* text : {"auto", "never", "must", "some/path"}) EXPECT_EQ(print_resume(parse_resume(text, "x")), text);
}

}  // namespace
}  // namespace spillway::trainer::text_test

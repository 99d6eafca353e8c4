// Tests the bytes of event files with a reader of the tests' own, and how the files are written when the disk is full.
#include "trainer/events/event.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <limits>

#include "base/error.h"
#include "base/types.h"
#include "tests/support/file_limit.h"
#include "tests/trainer/events/support_events.h"
#include "tests/trainer/support_trainer.h"
#include "trainer/events/watching.h"

namespace spillway::trainer::event_test {
namespace {

namespace fs = std::filesystem;

std::string bytes_of(const fs::path& file) { return read_whole(file).value_or("it cannot be read"); }

std::string line(i64 step) { return "{\"step\":" + std::to_string(step) + ",\"loss\":" + std::to_string(step) + ".5}"; }

TEST(Event, TheReadersChecksumIsThePublishedOne) { EXPECT_EQ(castagnoli("123456789"), 0xE3069283u); }

std::string hex(std::string_view bytes) {
  std::string text;
  for (const char c : bytes) text += fmt::format("{:02x}", static_cast<unsigned char>(c));
  return text;
}

// The expected bytes are those of the same events made with the classes of TensorBoard 2.21 (event_pb2, RecordWriter).
TEST(Event, IsTensorBoardsToTheByte) {
  EXPECT_EQ(hex(first_event(1.5)), "1800000000000000a37f4b2209000000000000f83f1a0d627261696e2e4576656e743a322a28646c");
  EXPECT_EQ(hex(start_event(1.5, 38)), "0f000000000000006d532b0909000000000000f83f10263a020801c4069b33");
  EXPECT_EQ(hex(scalars_event(1.5, 300, std::vector<Scalar>{{"loss", 0.5}})),
            "1b000000000000001a0d9e1309000000000000f83f10ac022a0d0a0b0a046c6f7373150000003f69f9315b");
  EXPECT_EQ(hex(text_event(1.5, 1, "sample", "In")),
            "31000000000000009d8383e909000000000000f83f10012a240a220a0673616d706c65420c08071200420620202020496e4a0a0a060a04746578742002"
            "4bada73e");
  Histogram histogram;
  histogram.add(std::vector<float>{-0.5f, 0, 0.25f, 1});
  EXPECT_EQ(hex(histogram_event(1.5, 300, "weights/w", histogram)),
            "c10000000000000003c17ac809000000000000f83f10ac022ab2010aaf010a09776569676874732f772aa10109000000000000e0bf11000000000000f0"
            "3f19000000000000104021000000000000e83f29000000000000f53f3238fae55a25d31fdebf000000000000000011ea2d819997713ded5ad35fc5eace"
            "3f9c0b81c11f01d13f08996919155aed3f2b14facdbe24f03f3a38000000000000f03f0000000000000000000000000000f03f00000000000000000000"
            "00000000f03f0000000000000000000000000000f03f851400bd");
}

TEST(Event, NumbersComeBack) {
  const std::vector<Scalar> scalars = {{"loss", 1.0 / 3},     {"validation/loss", -2}, {"inf", std::numeric_limits<double>::infinity()},
                                       {"nan", std::nan("")}, {"beyond float", 1e300}, {"", 0}};
  const i64 step = i64{1} << 40;
  const auto events = read_events(first_event(1) + start_event(2, 7) + scalars_event(3.25, step, scalars));
  ASSERT_EQ(events.size(), 3u);
  EXPECT_EQ(events[0].file_version, "brain.Event:2");
  EXPECT_EQ(events[1].session_status, 1);
  EXPECT_EQ(events[1].step, 7);
  EXPECT_EQ(events[2].wall_time, 3.25);
  EXPECT_EQ(events[2].step, step);
  ASSERT_EQ(events[2].values.size(), scalars.size());
  for (size_t i = 0; i < scalars.size(); ++i) {
    const ReadValue& value = events[2].values[i];
    EXPECT_EQ(value.tag, scalars[i].tag);
    EXPECT_TRUE(value.has_number);
    const auto wanted = static_cast<float>(scalars[i].value);
    EXPECT_TRUE(value.number == wanted || (std::isnan(value.number) && std::isnan(wanted))) << value.tag << " " << value.number;
  }
}

TEST(Event, TextIsOfTheTextPluginAndUtf8) {
  const std::string text = std::string("# In\nthe \0beginning\xff", 20);
  const ReadEvent event = read_events(text_event(1, 3, "sample", text)).at(0);
  const ReadValue& value = event.values.at(0);
  EXPECT_EQ(event.step, 3);
  EXPECT_EQ(value.tag, "sample");
  EXPECT_EQ(value.plugin, "text");
  EXPECT_EQ(value.dtype, 7);
  EXPECT_FALSE(value.has_number);
  EXPECT_EQ(value.texts, std::vector<std::string>{std::string("    # In\n    the \0beginning\xEF\xBF\xBD", 30)});
}

struct Watch : testing::Test {
  const TemporaryFolder folder;
  const fs::path run = folder.path();
  fs::path newest() const { return event_files(run).back(); }
};

// A killed process may leave an event file that ends at any byte. The reader returns all records that are complete before the cut.
TEST_F(Watch, EveryBeginningOfAFileIsRead) {
  {
    Watching watching(run, {.tensorboard = true}, 0, "{}");
    for (i64 step = 1; step <= 3; ++step) watching.line(line(step));
  }
  const std::string all = bytes_of(newest());
  size_t most = 0, rest = 0;
  for (size_t bytes = 0; bytes <= all.size(); ++bytes) {
    const size_t events = read_events(std::string_view(all).substr(0, bytes), &rest).size();
    EXPECT_GE(events, most);
    most = events;
  }
  EXPECT_EQ(rest, 0u);
  EXPECT_EQ(most, 6u);  // the six records are: first, start, config, three steps
}

TEST_F(Watch, AStartTellsWhichStepsNoLongerCount) {
  { const Watching first(run, {.tensorboard = true}, 0, "{\"a\":1}"); }
  { const Watching second(run, {.tensorboard = true}, 37, "{\"a\":2}"); }
  const auto files = event_files(run);
  ASSERT_EQ(files.size(), 2u);
  const auto before = read_events(bytes_of(files[0])), after = read_events(bytes_of(files[1]));
  EXPECT_EQ(before.at(1).session_status, 1);
  EXPECT_EQ(before.at(1).step, 0);
  EXPECT_EQ(before.at(2).values.at(0).texts.at(0), "    {\"a\":1}");
  EXPECT_EQ(after.at(1).session_status, 1);
  EXPECT_EQ(after.at(1).step, 38);
  EXPECT_EQ(after.at(2).step, 37);
  EXPECT_EQ(after.at(2).values.at(0).texts.at(0), "    {\"a\":2}");
}

TEST_F(Watch, NamesSortInTheOrderOfStarts) {
  const std::string first = next_event_name(run, 1'700'000'000);
  EXPECT_TRUE(first.starts_with("events.out.tfevents.1700000000.")) << first;
  EXPECT_TRUE(first.ends_with("." + std::to_string(::getpid()) + ".0")) << first;
  for (const std::string& name : {first, std::string("events.out.tfevents.1800000000.elsewhere.1.0"), std::string("events.out.tfevents.x"),
                                  std::string("events.out.tfevents.99999999999999999999.y.1.0")})
    std::ofstream(run / name) << "";
  EXPECT_GT(next_event_name(run, 1'700'000'000), "events.out.tfevents.1800000000.elsewhere.1.0") << "the clock went back";
  EXPECT_EQ(next_event_name(run, 7).size(), first.size()) << "ten digits, or the order of names is none";
}

TEST_F(Watch, OnAFullDiskNothingFollowsHalfARecord) {
  Watching watching(run, {.tensorboard = true, .metrics_csv = true}, 0, "{}");
  watching.line(line(1));
  const auto whole = fs::file_size(newest());
  {
    const test::FileLimit full(whole + 20);
    watching.line(line(2));
    watching.text(2, "sample", "In");
    EXPECT_TRUE(watching.files().front()->waits());
    size_t rest = 0;
    EXPECT_EQ(read_events(bytes_of(newest()), &rest).size(), 4u);
    EXPECT_EQ(rest, 20u);
  }
  watching.line(line(3));
  EXPECT_FALSE(watching.files().front()->waits());
  const auto events = read_events(bytes_of(newest()));
  ASSERT_EQ(events.size(), 7u);
  for (const auto& [at, step] : {std::pair(3, 1), {4, 2}, {5, 2}, {6, 3}}) EXPECT_EQ(events[static_cast<size_t>(at)].step, step);
}

TEST_F(Watch, WhatWaitsHasALimit) {
  GrowingFile file(data::File::create(run / "f"), 0, 10);
  {
    const test::FileLimit full(0);
    for (const char* piece : {"aaaa", "bbbb", "cccc", "dd"}) file.append(piece);
  }
  EXPECT_TRUE(file.waits());
  file.append("eeee");
  EXPECT_FALSE(file.waits());
  EXPECT_EQ(bytes_of(run / "f"), "aaaabbbbddeeee");
}

// A run goes on if its event files or metrics.csv cannot be created. missing() then names the files that the run does without.
TEST_F(Watch, WhatCannotBeMadeIsDoneWithout) {
  Watching watching(run / "nowhere", {.tensorboard = true, .metrics_csv = true}, 0, "{}");
  ASSERT_EQ(watching.missing().size(), 2u);
  EXPECT_NE(watching.missing()[0].find("without event files"), std::string::npos) << watching.missing()[0];
  watching.line(line(1));
  watching.text(1, "sample", "In");
  EXPECT_TRUE(watching.files().empty());
}

TEST_F(Watch, UnwantedWritesNothing) {
  Watching watching(run, {}, 0, "{}");
  watching.line(line(1));
  EXPECT_TRUE(fs::is_empty(run));
}

TEST(Scalars, AreGroupedAndInOneOrder) {
  const StepScalars step = scalars_of(
      R"({"step":3,"loss":0.1,"skipped":true,"tier_bytes":{"device":5,"host":6,"nvme":7},"phase_ms":{"head":2},"validation_loss":9,)"
      R"("bound_by":"disk","matmul_share":null,"of_tomorrow":1})");
  EXPECT_EQ(step.step, 3);
  const std::vector<Scalar> wanted = {{"loss", 0.1},
                                      {"validation/loss", 9},
                                      {"update/skipped", 1},
                                      {"memory/device_bytes", 5},
                                      {"memory/host_bytes", 6},
                                      {"memory/nvme_bytes", 7},
                                      {"phase_ms/head", 2}};
  EXPECT_EQ(step.scalars, wanted);
  const std::string header = csv_header(), row = csv_row(step);
  EXPECT_TRUE(header.starts_with("step,loss,validation/loss,validation/accuracy,grad_norm,")) << header;
  EXPECT_TRUE(row.starts_with("3,0.1,9,,,")) << row;
  EXPECT_EQ(std::ranges::count(header, ','), std::ranges::count(row, ','));
}

TEST(Scalars, WhatIsNotFiniteIsSaid) {
  const auto nan = scalars_of(R"({"step":1,"loss":null,"matmul_share":null,"nonfinite":"nan"})").scalars;
  ASSERT_EQ(nan.size(), 1u);
  EXPECT_TRUE(std::isnan(nan[0].value));
  EXPECT_TRUE(std::isinf(scalars_of(R"({"step":1,"loss":null,"nonfinite":"inf"})").scalars.at(0).value));
  EXPECT_TRUE(scalars_of(R"({"step":1,"loss":null})").scalars.empty());
}

TEST(Scalars, OfWhatIsNoLineThereAreNone) {
  for (const char* text : {"", "{", "[]", "3", R"({"loss":1})", R"({"step":0})", R"({"step":1.5})", R"({"step":"1"})"})
    EXPECT_EQ(scalars_of(text).step, 0) << text;
  EXPECT_TRUE(scalars_of(R"({"step":1,"loss":"x","tier_bytes":3,"phase_ms":[1]})").scalars.empty());
}

}  // namespace
}  // namespace spillway::trainer::event_test

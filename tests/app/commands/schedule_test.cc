// Runs the schedule command in the whole program and tests what it prints, draws and writes, and what it refuses.
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <regex>

#include "app/report/schedule_report.h"
#include "parallel/schedule/schedule_generate.h"
#include "tests/app/support_app.h"
#include "tests/support/fixtures.h"
#include "trainer/settings/schedule_costs.h"

namespace spillway::app::schedule_test {
namespace {

using Json = nlohmann::json;
using Words = std::vector<std::string>;

bool has(const std::string& text, const std::string& piece) { return text.find(piece) != std::string::npos; }

Outcome schedule(Words words) {
  words.insert(words.begin(), "schedule");
  return run_app(words);
}

Words shape(const std::string& name, int stages, int micro_batches) {
  return {"--pipeline-schedule",        name, "--pipeline-stages", std::to_string(stages), "--gradient-accumulation-steps",
          std::to_string(micro_batches)};
}

Words with(Words words, const Words& more) {
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

std::string reference(const std::string& name) { return test::data("schedules/" + name).string(); }
std::string whole(const std::string& path) { return *read_whole(path); }

TEST(ScheduleCommand, PrintsTheTableAndItsFigures) {
  const Outcome outcome = schedule(shape("1f1b", 4, 8));
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_EQ(outcome.err, "");
  for (const char* piece : {"1f1b: 4 ranks, 1 stage a rank, 8 micro-batches; times F=1,B=1,I=1,W=1,transfer=0,kept=1\n",
                            "rank 0   0F0 0F1 0F2 0F3   .   .   . 0B0 0F4 0B1 0F5 0B2 0F6 0B3 0F7 0B4   . 0B5   . 0B6   . 0B7\n",
                            "rank 3     .   .   . 3F0 3B0 3F1", "rank 0            16         6             6                 4\n",
                            "rank 3            16         6             0                 1\n", "makespan 22, bubble 27.3 %",
                            "executable: weight gradients come in ascending"}) {
    EXPECT_TRUE(has(outcome.out, piece)) << piece << " in:\n" << outcome.out;
  }
}

TEST(ScheduleCommand, TimesStretchTheColumns) {
  const Outcome twice = schedule(with(shape("gpipe", 2, 2), {"--costs", "B=2,transfer=1"}));
  EXPECT_TRUE(has(twice.out, "rank 0   0F0 0F1   .   .   .   .   . 0B0   - 0B1   -\n")) << twice.out;
  EXPECT_TRUE(has(twice.out, "rank 1     .   . 1F0 1F1 1B0   - 1B1   -   .   .   .\n")) << twice.out;
  EXPECT_TRUE(has(twice.out, "makespan 11,")) << twice.out;
  const Outcome fraction = schedule(with(shape("gpipe", 2, 2), {"--costs", "B=1.5"}));
  EXPECT_TRUE(has(fraction.out, "actions in order")) << fraction.out;
  EXPECT_TRUE(has(fraction.out, "rank 1   1F0 1F1 1B0 1B1\n")) << fraction.out;
  EXPECT_TRUE(has(fraction.out, "makespan 7.5,")) << fraction.out;
  const Outcome wide = schedule(with(shape("gpipe", 2, 2), {"--costs", "F=100000"}));
  EXPECT_TRUE(has(wide.out, "\nactions in order:\nrank 0   0F0 0F1 0B0 0B1\n")) << wide.out;
  const Outcome free = schedule(with(shape("zb-h1", 2, 2), {"--costs", "W=0"}));
  EXPECT_TRUE(has(free.out, "rank 0   0F0 0F1 0I0 0W0 0I1 0W1\n")) << free.out;
}

// On a terminal a table that is too wide is cut between columns, and its parts stand below each other.
TEST(ScheduleCommand, WideTablesAreCut) {
  const parallel::Schedule gpipe =
      parallel::generate_schedule(*parallel::schedule_kind("gpipe"), {.ranks = 2, .micro_batches = 2, .chunks = 1});
  const parallel::ScheduleCosts costs;
  const parallel::ScheduleTimes times = parallel::simulate_schedule(gpipe, costs);
  const std::string text = schedule_text({gpipe, costs, times}, 20);
  EXPECT_TRUE(has(text, "rank 0   0F0 0F1   .\nrank 1     . 1F0 1F1\n\nrank 0     . 0B0 0B1\nrank 1   1B0 1B1   .\n")) << text;
}

TEST(ScheduleCommand, ChunksDefaultToTheSchedulesOwn) {
  EXPECT_TRUE(has(schedule(shape("interleaved", 2, 4)).out, "2 stages a rank"));
  EXPECT_TRUE(has(schedule(with(shape("interleaved", 2, 4), {"--pipeline-chunks", "3"})).out, "3 stages a rank, 4 micro-batches"));
  EXPECT_TRUE(has(schedule(shape("zb-v", 2, 4)).out, "2 stages a rank"));
  EXPECT_TRUE(has(schedule({}).out, "1f1b: 1 rank, 1 stage a rank, 1 micro-batch;"));
}

TEST(ScheduleCommand, ReadsATableAndSaysWhyItMayNotRun) {
  const Outcome overlapped = schedule({"--pipeline-schedule", reference("DualPipeV_r2_m4_s2.compact.csv")});
  EXPECT_TRUE(has(overlapped.out, "0F3 +3B1  3F2 +0B0")) << overlapped.out;
  EXPECT_TRUE(has(overlapped.out, "makespan 20,")) << overlapped.out;
  const Outcome reversed = schedule({"--pipeline-schedule", reference("LoopedBFS_r2_m4_s2.csv"), "--pipeline-stages", "2"});
  EXPECT_EQ(reversed.status, 0) << reversed.err;
  EXPECT_TRUE(has(reversed.out, "not executable: stage 2 runs the weight gradient of micro-batch 3 before")) << reversed.out;
}

TEST(ScheduleCommand, WritesTablesWithAndWithoutIdleSlots) {
  const TemporaryFolder folder;
  const std::string idle = (folder.path() / "x.csv").string(), compact = (folder.path() / "x.compact.csv").string();
  const Words zb_v = shape("zb-v", 2, 4);
  EXPECT_TRUE(has(schedule(with(zb_v, {"--csv", idle})).err, "wrote " + idle));
  EXPECT_EQ(schedule(with(zb_v, {"--csv", compact, "--quiet"})).err, "");
  EXPECT_EQ(whole(idle), whole(reference("ZBVZeroBubble_r2_m4_s2.csv")));
  EXPECT_EQ(whole(compact), whole(reference("ZBVZeroBubble_r2_m4_s2.compact.csv")));
  // A schedule that is read from a CSV file and written again keeps its idle slots.
  const std::string theirs = reference("Interleaved1F1B_r2_m4_s2.csv");
  EXPECT_EQ(schedule({"--pipeline-schedule", theirs, "--csv", idle}).status, 0);
  EXPECT_EQ(whole(idle), whole(theirs));
  EXPECT_EQ(schedule({"--pipeline-schedule", theirs, "--csv", compact}).status, 0);
  EXPECT_EQ(whole(compact), whole(reference("Interleaved1F1B_r2_m4_s2.compact.csv")));
  const Outcome onto_itself = schedule({"--pipeline-schedule", idle, "--csv", idle});
  EXPECT_EQ(onto_itself.status, 2) << onto_itself.err;
  EXPECT_EQ(whole(idle), whole(theirs));
}

i64 count(const std::string& text, const std::string& form) {
  const std::regex regex(form);
  return std::distance(std::sregex_iterator(text.begin(), text.end(), regex), std::sregex_iterator());
}

TEST(ScheduleCommand, Draws) {
  const TemporaryFolder folder;
  const std::string path = (folder.path() / "x.svg").string();
  ASSERT_EQ(schedule(with(shape("zb-v", 2, 4), {"--out", path})).status, 0);
  const std::string drawing = whole(path);
  EXPECT_TRUE(drawing.starts_with("<svg xmlns=\"http://www.w3.org/2000/svg\"") && drawing.ends_with("</svg>\n"));
  EXPECT_EQ(count(drawing, "<title>\\d+F\\d+: "), 16);
  EXPECT_EQ(count(drawing, "<title>\\d+I\\d+: "), 16);
  EXPECT_EQ(count(drawing, "<title>\\d+W\\d+: "), 16);
  EXPECT_EQ(count(drawing, "text-anchor=\"middle\">3</text>"), 12) << "a number in every box";
  EXPECT_EQ(count(drawing, ">rank \\d</text>"), 2);
  EXPECT_TRUE(has(drawing, "<title>3F0: 3 to 4</title>"));
  EXPECT_TRUE(has(drawing, "makespan 25, bubble 4.0 %"));
  // In the drawing, actions of stages 0 and 1 have the same shade. Stage 3 is a later chunk of its rank, so its actions have another
  // shade.
  const auto shade = [&](const char* action) {
    const size_t title = drawing.find(std::string("<title>") + action + ":");
    return drawing.substr(drawing.rfind("fill=", title), 14);
  };
  EXPECT_EQ(shade("0F0"), shade("0F3"));
  EXPECT_EQ(shade("0F0"), shade("1F0"));
  EXPECT_NE(shade("0F0"), shade("3F0"));
  EXPECT_NE(shade("0F0"), shade("0W0"));
}

TEST(ScheduleCommand, DrawsPairsAndOddNames) {
  const TemporaryFolder folder;
  const std::string table = folder.write("a<b>&\"c\".csv", whole(reference("DualPipeV_r2_m4_s2.compact.csv")));
  const std::string path = (folder.path() / "x.svg").string();
  ASSERT_EQ(schedule({"--pipeline-schedule", table, "--out", path}).status, 0);
  const std::string drawing = whole(path);
  EXPECT_EQ(count(drawing, "fill=\"none\""), 6) << "an outline a pair";
  EXPECT_TRUE(has(drawing, "a&#60;b&#62;&#38;&#34;c&#34;.csv"));
  EXPECT_FALSE(has(drawing, "a<b"));
}

TEST(ScheduleCommand, Json) {
  const Outcome outcome = schedule(with(shape("zb-h1", 4, 8), {"--json", "--costs", "kept=0.5"}));
  const Json all = Json::parse(outcome.out);
  EXPECT_EQ(all["schedule"], "zb-h1");
  EXPECT_EQ(all["makespan"], 27);
  EXPECT_EQ(all["executable"], true);
  EXPECT_EQ(all["stage_to_rank"], Json({0, 1, 2, 3}));
  EXPECT_EQ(all["rank_times"][3]["idle_inside"], 0);
  EXPECT_EQ(all["rank_times"][3]["start"], 3);
  EXPECT_EQ(all["rank_times"][3]["peak_activations"], 2.5);
  EXPECT_EQ(all["table"][3][1], "3I0");
  EXPECT_TRUE(Json::parse(schedule({"--json", "--pipeline-schedule", reference("LoopedBFS_r2_m4_s2.csv")}).out)["why_not"].is_string());
}

// For 2000 ranks the schedule command prints times but leaves out the table of actions, which would be too long to read.
TEST(ScheduleCommand, LargeOnesAreTimedWithoutATable) {
  const TemporaryFolder folder;
  const Outcome outcome = schedule(shape("1f1b", 2000, 64));
  EXPECT_TRUE(has(outcome.out, "the table of 256000 actions is too long to print; --csv X.csv writes it")) << outcome.out.substr(0, 300);
  EXPECT_TRUE(has(outcome.out, "\nrank 1999 ")) << outcome.out.substr(0, 300);
  EXPECT_TRUE(has(outcome.out, "makespan 4126,"));
  const Outcome drawn = schedule(with(shape("1f1b", 2000, 64), {"--out", (folder.path() / "x.svg").string()}));
  EXPECT_EQ(drawn.status, 2);
  EXPECT_TRUE(has(drawn.err, "[--out] expected at most 200000 actions to draw, got 256000")) << drawn.err;
  EXPECT_FALSE(std::filesystem::exists(folder.path() / "x.svg"));
}

TEST(ScheduleCommand, UnknownNamesAreToldTheNearest) {
  const std::pair<const char*, const char*> cases[] = {
      {"ScheduleGPipe", "gpipe"},         {"1F1B", "1f1b"},         {"interleave", "interleaved"},
      {"Interleaved1F1B", "interleaved"}, {"zbv", "zb-v"},          {"zb-h2", "zb-h1"},
      {"LoopedBFS", "vertical"},          {"verticle", "vertical"}, {"ZBVZeroBubble", "zb-v"}};
  for (const auto& [theirs, ours] : cases) {
    const Outcome outcome = schedule(shape(theirs, 2, 2));
    EXPECT_EQ(outcome.status, 2);
    EXPECT_TRUE(has(outcome.err, std::string("did you mean ") + ours + "?")) << outcome.err;
  }
  const Outcome far = schedule(shape("something", 2, 2));
  EXPECT_EQ(far.status, 2);
  EXPECT_TRUE(has(far.err, "expected one of: gpipe 1f1b interleaved zb-h1 zb-v vertical or a CSV file")) << far.err;
}

TEST(ScheduleCommand, Refusals) {
  const TemporaryFolder folder;
  const std::string broken = folder.write("broken.csv", "0F0,0B0\n1F0,1X0\n"), table = reference("GPipe_r2_m4_s1.compact.csv");
  const std::tuple<Words, int, const char*> cases[] = {
      {{"--pipeline-schedule", "/no/such.csv"}, 4, "/no/such.csv"},
      {{"--pipeline-schedule", broken}, 4, "broken.csv, row 2, column 2: expected an action such as 3F0"},
      {{"--pipeline-schedule", table, "--pipeline-stages", "4"}, 2, "[--pipeline-stages] expected 2, "},
      {{"--pipeline-schedule", table, "--pipeline-chunks", "2"}, 2, "[--pipeline-chunks] expected 1, as"},
      {{"--pipeline-schedule", table, "--gradient-accumulation-steps", "5"}, 2, "[--gradient-accumulation-steps] expected 4, as"},
      {{"--pipeline-stages", "0"}, 2, "at least 1"},
      {{"--pipeline-chunks", "2"}, 2, "choose interleaved"},
      {{"--pipeline-stages", "100000"}, 2, "expected 1 to 65536 ranks"},
      {{"--gradient-accumulation-steps", "9999999999999999"}, 2, "micro-batches, got 9999999999999999"},
      {{"--out", "x.png"}, 2, "[--out] expected a name that ends in .svg"},
      {{"--csv", "x.txt"}, 2, "[--csv] expected a name that ends in .csv"},
      {{"--out", "/no/such/folder/x.svg"}, 5, "/no/such/folder/x.svg"},
      {{"--pp", "4"}, 2, "is --pipeline-stages"},
      {{"--num-microbatches", "4"}, 2, "is --gradient-accumulation-steps"},
      {{"--costs", "F"}, 2, "[--costs] expected KEY=TIME such as B=2, got \"F\""},
      {{"--costs", "F=1,F=2"}, 2, "each key once, got F twice"},
      {{"--costs", "X=1"}, 2, "expected F, B, I, W, transfer or kept, got \"X\""},
      {{"--costs", "F=-1"}, 2, "[schedule costs] expected times that are 0 or from 1e-09 to 1000000000, got -1"},
      {{"--costs", "F=nan"}, 2, "expected a number"},
      {{"--costs", "F="}, 2, "expected one time for all stages"},
      {{"--costs", "kept=2"}, 2, "from 0 to 1, got 2"},
      {{"--costs", "F=1:2,B=1:2:3"}, 2, "in every list"},
      {{"--pipeline-stages", "3", "--costs", "F=1:2"}, 2, "expected 1 cost for all stages or 3"}};
  for (const auto& [words, status, piece] : cases) {
    const Outcome outcome = schedule(words);
    EXPECT_EQ(outcome.status, status) << outcome.err;
    EXPECT_TRUE(has(outcome.err, piece)) << piece << " in:\n" << outcome.err;
    EXPECT_EQ(outcome.out, "");
  }
}

TEST(ScheduleCommand, FlagsAreKeysOfAConfiguration) {
  const TemporaryFolder folder;
  const std::string file = folder.write("s.json", R"({"pipeline_schedule": "gpipe", "pipeline_stages": 3, "costs": "B=2"})");
  const Outcome outcome = schedule({"--config", file, "--pipeline-stages", "2"});
  EXPECT_TRUE(has(outcome.out, "gpipe: 2 ranks, 1 stage a rank, 1 micro-batch; times F=1,B=2")) << outcome.out << outcome.err;
}

TEST(ScheduleCosts, ReadBackAsTheyArePrinted) {
  for (const char* text : {"F=1,B=1,I=1,W=1,transfer=0,kept=1", "F=1:2.5:0.1,B=2,I=1:1:3,W=0,transfer=0.25,kept=0.5"}) {
    EXPECT_EQ(print_costs(parse_costs(text, "--costs")), text);
    EXPECT_EQ(parse_costs(print_costs(parse_costs(text, "x")), "x"), parse_costs(text, "x"));
  }
  const parallel::ScheduleCosts costs = parse_costs("W=3,F=1:2", "x");
  ASSERT_EQ(costs.stages.size(), 2u);
  EXPECT_EQ(costs.stages[1], (parallel::StageCosts{2, 1, 1, 3}));
}

}  // namespace
}  // namespace spillway::app::schedule_test

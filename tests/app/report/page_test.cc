// Tests the report page: it needs no other file, shows the numbers of the run's files,
// escapes any markup in them, and stays small. Takes 0.3 s, and 4 s with the long run.
#include "app/report/page.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "app/report/chart.h"
#include "app/report/html.h"
#include "app/report/timeline_svg.h"
#include "tests/app/support_app.h"

namespace spillway::app::page_test {
namespace {

using testing::HasSubstr;
using testing::Not;

std::string line(i64 step, double loss) {
  return fmt::format(
      R"({{"step":{},"loss":{},"grad_norm":1.5,"lr":0.001,"tokens":100,"tokens_per_s":200.0,"step_ms":500.0,"phase_ms":{{"bound_compute":400,)"
      R"("bound_disk":100,"lane_compute":400,"head":450,"tail":50}},"clipped":false,"tier_bytes":{{"device":1000,"host":0,"nvme":0}},)"
      R"("peak_bytes":{{"device":2000,"host":0,"nvme":0}},"read_bytes":{{"device":0,"host":0,"nvme":0}},"began_at_step":0,"bound_by":"compute",)"
      R"("predicted_ms":450.0}})"
      "\n",
      step, loss);
}

class PageTest : public testing::Test {
 protected:
  void write(const std::string& name, const std::string& text) const { folder_.write(name, text); }
  std::string page(const std::vector<std::string>& names) const {
    std::vector<ReportedRun> runs;
    for (const std::string& name : names) runs.push_back(read_run(folder_.path() / name, buckets_for(names.size())));
    return report_page(runs, "today");
  }
  const TemporaryFolder folder_;
};

TEST_F(PageTest, ShowsTheNumbersOfTheFile) {
  write("run/metrics.jsonl", line(1, 4.5) + line(2, 1.0 / 3) + line(3, 0.4371228396892548));
  write("run/config.json", R"({"steps": 4, "resume": "auto", "model": "m"})");
  const std::string text = page({"run"});
  EXPECT_THAT(text, HasSubstr(R"(<data value="0.4371228396892548" title="0.4371228396892548">0.4371</data></b><span>loss at step 3)"));
  EXPECT_THAT(text, HasSubstr(fmt::format("<data value=\"{}\"", 1.0 / 3)));
  EXPECT_THAT(text, HasSubstr("<b>3 of 4</b><span>steps, stopped"));
  EXPECT_THAT(text, HasSubstr("spillway train --config "));
  EXPECT_THAT(text, HasSubstr("<figcaption>Loss</figcaption>"));
  EXPECT_THAT(text, HasSubstr("bound by compute"));
}

// The report page loads nothing from elsewhere: it contains no URL, neither in its markup nor in its scripts.
TEST_F(PageTest, NeedsNothingBesideIt) {
  write("run/metrics.jsonl", line(1, 4.5) + line(2, 3));
  const std::string text = page({"run"});
  for (const char* word : {"http://", "https://", "src=", "href=", "@import", "url(", "fetch("})
    EXPECT_THAT(text, Not(HasSubstr(word))) << word;
  EXPECT_THAT(text, HasSubstr("default-src 'none'"));
}

TEST_F(PageTest, TakesNoMarkupFromFiles) {
  const std::string evil = "</pre><script>alert(1)</script><img onerror='x' \"";
  write("a<b>&\"x'/metrics.jsonl",
        line(1, 4.5) + R"({"step":2,"loss":1,"step_ms":5,"began_at_step":0,"bound_by":"</svg><script>alert(2)</script>"})" + "\n");
  write("a<b>&\"x'/config.json", R"({"model": "</td><script>alert(3)</script>", "<script>alert(4)</script>": 1, "out": "\u0000"})");
  write("a<b>&\"x'/plan.json",
        R"({"model": "<script>alert(5)</script>", "rows": [{"what": "<script>alert(6)</script>", "bytes": {"device": 5}}],
    "choices": ["<script>alert(7)</script>"], "bound_by": "<script>"})");
  write("a<b>&\"x'/timeline.json",
        R"({"step":1,"ranks":[{"name":"<script>","bars":[[0,"<script>alert(8)</script>",0,100,1,1,1],[0,"forward",1,0,0,0,0],["x"],5]}]})");
  write("a<b>&\"x'/lock", "<script>alert(9)</script>");
  for (const std::string& text : {page({"a<b>&\"x'"}), page({"a<b>&\"x'", "a<b>&\"x'"})}) {
    EXPECT_THAT(text, Not(HasSubstr("<script>alert")));
    EXPECT_THAT(text, Not(HasSubstr("a<b>")));
    EXPECT_THAT(text, HasSubstr("&#60;script&#62;alert(3)"));
    EXPECT_THAT(text, HasSubstr("&#60;script&#62;alert(6)"));
  }
  EXPECT_EQ(escaped(evil).find_first_of("<>\"'"), std::string::npos);
  EXPECT_EQ(escaped("a\xff\x01z\xc3\xa9"), "a\xef\xbf\xbd\xef\xbf\xbdz\xc3\xa9");
}

TEST_F(PageTest, WhatIsDamagedIsSaid) {
  write("run/metrics.jsonl", line(1, 4.5) + "{broken\n" + line(2, 4) + "{\"step\": 3, \"lo");
  write("run/config.json", "[");
  write("run/plan.json", "{");
  write("run/timeline.json", "{\"ranks\": 5}");
  const std::string text = page({"run"});
  EXPECT_THAT(text, HasSubstr("1 line is damaged and left out: line 2"));
  EXPECT_THAT(text, HasSubstr("the last line is "));
  EXPECT_THAT(text, HasSubstr("config.json cannot be read"));
  EXPECT_THAT(text, HasSubstr("no plan (plan.json)"));
}

TEST_F(PageTest, ARunBeforeItsFirstStep) {
  write("run/lock", "");
  const std::string text = page({"run"});
  EXPECT_THAT(text, HasSubstr("No step has ended yet"));
}

TEST_F(PageTest, SeveralRunsShareTheirCharts) {
  write("a/metrics.jsonl", line(1, 4.5) + line(2, 4));
  write("b/metrics.jsonl", line(1, 5.5) + line(2, 3));
  write("a/config.json", R"({"learning_rate": 0.1, "seed": 1})");
  write("b/config.json", R"({"learning_rate": 0.2, "seed": 1})");
  const std::string text = page({"a", "b"});
  const size_t loss = text.find("<figcaption>Loss</figcaption>");
  ASSERT_NE(loss, text.npos);
  EXPECT_EQ(text.find("<figcaption>Loss</figcaption>", loss + 1), text.npos);
  EXPECT_THAT(text, HasSubstr("learning_rate</th><td>0.1</td><td>0.2"));
  const std::string differs =
      text.substr(text.find("What differs"), text.find("</table>", text.find("What differs")) - text.find("What differs"));
  EXPECT_THAT(differs, Not(HasSubstr("seed")));
}

using PageTestRelease = PageTest;
TEST_F(PageTestRelease, OfAHundredThousandStepsIsSmall) {
  std::string text;
  for (i64 step = 1; step <= 100'000; ++step)
    text += line(step, 2 + static_cast<double>(step * 7919 % 1000) / 1000 + (step == 55'555 ? 90 : 0));
  write("run/metrics.jsonl", text);
  const std::string made = page({"run"});
  EXPECT_LT(made.size(), 2'000'000u);
  EXPECT_THAT(made, HasSubstr(" 55555 "));
}

TEST(Chart, AFlatLineAndASinglePointAreDrawn) {
  Chart chart{.title = "t", .what = "w", .lines = {{"flat", {{5, 3.0}}, 0}}};
  EXPECT_THAT(figure(chart), HasSubstr("<circle"));
  EXPECT_THAT(figure(chart), Not(HasSubstr("nan")));
  chart.lines[0].points = {{1, 0}, {2, 0}};
  EXPECT_THAT(figure(chart), Not(HasSubstr("nan")));
  chart.lines[0].points.clear();
  EXPECT_EQ(figure(chart), "");
}

TEST(Axis, RoundNumbersWithTheirUnit) {
  EXPECT_EQ(ticks(0, 10, 5, Unit::number), (std::vector<double>{0, 2, 4, 6, 8, 10}));
  EXPECT_EQ(ticks(0, 3 * 1024.0 * 1024, 3, Unit::bytes), (std::vector<double>{0, 1048576, 2097152, 3145728}));
  EXPECT_EQ(ticks(1, 3, 10, Unit::count), (std::vector<double>{1, 2, 3}));
  EXPECT_EQ(log_ticks(0.5, 200), (std::vector<double>{1, 10, 100}));
  EXPECT_EQ(shown(1234567, Unit::count), "1.235M");
  EXPECT_EQ(shown(0.0123, Unit::seconds), "12.3 ms");
}

TEST(Timeline, NeighboursTooShortToSeeBecomeOne) {
  Timeline timeline{3, {{"", {}}}};
  std::vector<Bar>& bars = timeline.ranks[0].bars;
  for (int n = 0; n < 10'000; ++n) bars.push_back({parallel::Lane::compute, "forward", n * 1.0, n + 0.9, n, 0, 1});
  bars.push_back({parallel::Lane::compute, "backward", 10'000, 20'000, 3, 0, 1});
  const std::vector<Bar> few = thinned(bars, 4000);
  ASSERT_EQ(few.size(), 2u);
  EXPECT_EQ(few[0].count, 10'000);
  EXPECT_EQ(few[0].block, -1);
  EXPECT_EQ(few[1].block, 3);
  // The timeline merges neighbouring bars of one kind. If kinds alternate, so that no bars can be merged, it keeps the longest bars.
  for (size_t n = 0; n < 10'000; n += 2) bars[n].kind = "fetch";
  const std::vector<Bar> most = thinned(bars, 100);
  EXPECT_EQ(most.size(), 100u);
  EXPECT_EQ(most.back().kind, "backward");
  EXPECT_LT(lanes_figure(timeline, 0, "x", 100).size(), 40'000u);
}

}  // namespace
}  // namespace spillway::app::page_test

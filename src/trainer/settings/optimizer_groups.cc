#include "trainer/settings/optimizer_groups.h"

#include <algorithm>
#include <map>

#include "base/error.h"
#include "data/tokenizer/stages/regex.h"
#include "data/tokenizer/work_budget.h"
#include "trainer/settings/text.h"

namespace spillway::trainer {
namespace {

constexpr const char* kFlag = "--optimizer-group";

// Compiles a pattern with the regex engine of the tokenizers. An invalid pattern is a usage error, because it comes from the command line.
data::Regex regex_of(const std::string& pattern) try {
  return data::Regex(pattern, std::string("[") + kFlag + "]");
} catch (const Error& error) {
  refuse(error.what());
}

double setting(const std::string& text, const std::string& key) {
  const double value = parse_number(text, std::string(kFlag) + " " + key);
  if (value < 0) refuse(std::string("[") + kFlag + "] expected " + key + " of at least 0, got " + text);
  return value;
}

bool is_in(const data::Regex& regex, const std::string& name) try {
  static const std::string kWhere = kFlag;
  data::WorkBudget budget(kWhere, name.size());
  return data::Regex::Walk(regex, name, budget).next();
} catch (const Error&) {
  refuse(std::string("[") + kFlag + "] expected a pattern that matches, or fails to match, within a limited number of steps, got \"" +
         regex.pattern() + "\", which backtracks for too long in " + name + ": avoid nested repeats such as (a*)*");
}

}  // namespace

OptimizerGroup parse_optimizer_group(const std::string& text) {
  const size_t colon = text.rfind(':');
  if (colon == text.npos || colon == 0)
    refuse(std::string("[") + kFlag + "] expected PATTERN:key=value,… such as \"\\.bias$:weight_decay=0\", got \"" + text + "\"");
  OptimizerGroup group{.pattern = text.substr(0, colon), .learning_rate = {}, .weight_decay = {}};
  regex_of(group.pattern);
  for (size_t begin = colon + 1; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    const std::string one = text.substr(begin, end - begin), key = one.substr(0, one.find('='));
    const auto member = key == "lr" ? &OptimizerGroup::learning_rate : key == "weight_decay" ? &OptimizerGroup::weight_decay : nullptr;
    if (!member || key == one)
      refuse(std::string("[") + kFlag + "] expected lr=X or weight_decay=X after the pattern \"" + group.pattern + "\", got \"" + one +
             "\"");
    if (group.*member) refuse(std::string("[") + kFlag + "] expected " + key + " once, got \"" + text + "\"");
    group.*member = setting(one.substr(key.size() + 1), key);
    begin = end + 1;
  }
  return group;
}

std::vector<u16> groups_of_names(std::span<const OptimizerGroup> groups, std::span<const std::string> names,
                                 const std::vector<bool>& statistic) {
  std::vector<u16> group_of(names.size(), 0);
  for (size_t g = 0; g < groups.size(); ++g) {
    const data::Regex regex = regex_of(groups[g].pattern);
    bool found = false;
    std::string idle;  // name of a batch-norm running statistic that the pattern matches
    for (size_t n = 0; n < names.size(); ++n) {
      if (group_of[n] != 0 || !is_in(regex, names[n])) continue;
      group_of[n] = static_cast<u16>(g + 1);
      const bool moved = n >= statistic.size() || !statistic[n];
      found |= moved;
      if (!moved) idle = names[n];
    }
    if (found) continue;
    if (!idle.empty()) {
      refuse(std::string("[") + kFlag + "] expected a pattern that matches a parameter which the optimizer updates, but \"" +
             groups[g].pattern + "\" matches only running statistics of batch norm, such as " + idle +
             ": a step sets these from its micro-batches, whatever the optimizer is; leave the group out");
    }
    std::string some;
    for (size_t n = 0; n < std::min<size_t>(3, names.size()); ++n) some += (n > 0 ? ", " : "") + names[n];
    refuse(std::string("[") + kFlag + "] expected a pattern that matches a parameter which no earlier group matches, but \"" +
           groups[g].pattern + "\" matches none of " + std::to_string(names.size()) + " names, such as " + some);
  }
  return group_of;
}

}  // namespace spillway::trainer

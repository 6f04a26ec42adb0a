#include "troika/schedule/needs.h"

namespace troika {

Dependencies::Dependencies(const Schedule& schedule)
    : schedule_(schedule),
      sources_(static_cast<size_t>(schedule.num_stages())),
      targets_(static_cast<size_t>(schedule.num_stages())) {
  for (const Edge& edge : schedule.edges) {
    sources_[static_cast<size_t>(edge.to)].push_back(edge.from);
    targets_[static_cast<size_t>(edge.from)].push_back(edge.to);
  }
}

void Dependencies::needs(const Action& action, std::vector<Action>& out) const {
  out.clear();
  for_each(action, [&](const Action& needed) { out.push_back(needed); });
}

std::vector<Action> needs(const Action& action, const Schedule& schedule) {
  std::vector<Action> out;
  Dependencies(schedule).needs(action, out);
  return out;
}

}  // namespace troika

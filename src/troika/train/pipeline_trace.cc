#include "troika/train/pipeline_trace.h"

#include <algorithm>
#include <limits>
#include <map>

#include "troika/schedule/passes.h"
#include "troika/simulate/simulate.h"

namespace troika {

Trace lanes_of_first_replica(const Trace& trace, const Mesh& mesh) {
  Trace lanes;
  lanes.ranks = mesh.pipeline;
  double start = std::numeric_limits<double>::infinity();
  for (const Span& span : trace.spans) {
    const Coordinate at = mesh.coordinate(span.rank);
    if (at.data != 0 || at.tensor != 0 || span.action.op == Op::load) continue;
    lanes.spans.push_back(span);
    lanes.spans.back().rank = at.pipeline;
    if (is_pass(span.action.op)) start = std::min(start, span.start_s);
  }
  for (Span& span : lanes.spans) {
    span.start_s = std::max(0.0, span.start_s - start);
    span.end_s = std::max(span.start_s, span.end_s - start);
  }
  return lanes;
}

double measured_bubble(const Schedule& schedule, const Trace& lanes) {
  return summarize(schedule, lanes).bubble_rate_makespan;
}

Trace simulated_from(const Schedule& schedule, const Trace& lanes) {
  struct Mean {
    double seconds = 0;
    int64_t count = 0;
  };
  std::map<std::pair<int, Op>, Mean> means;
  for (const Span& span : lanes.spans) {
    Mean& mean = means[{span.action.stage, span.action.op}];
    mean.seconds += span.end_s - span.start_s;
    ++mean.count;
  }
  CostModel costs;
  for (int stage = 0; stage < schedule.num_stages(); ++stage) {
    const auto mean_of = [&](Op op) {
      const Mean& mean = means[{stage, op}];
      return mean.count == 0 ? 0 : mean.seconds / static_cast<double>(mean.count);
    };
    StageCost& cost = costs.stages.emplace_back();
    cost.forward_s = mean_of(Op::forward);
    cost.input_s = mean_of(Op::backward_input);
    cost.weight_s = mean_of(Op::backward_weight);
    cost.backward_s = mean_of(Op::backward);
  }
  return simulate(with_messages(schedule), costs);
}

}  // namespace troika

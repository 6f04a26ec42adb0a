#include "troika/schedule/passes.h"

namespace troika {

Schedule whole_step(const Schedule& schedule) {
  return with_updates(with_reductions(with_messages(with_loads(schedule))));
}

}  // namespace troika

//! Sorts views so that each follows the views that it reads.

use std::collections::HashMap;

use tailwater_wire::sql_quote::qualified_name;

/// A view and its definition, in which the server writes every table as `` `schema`.`table` ``.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ViewDefinition {
    /// The database of the view.
    pub schema: String,
    /// The name of the view.
    pub name: String,
    /// The SELECT statement of the view.
    pub definition: String,
}

/// Sorts views by the names that occur in their definitions. A string literal may look like the name of a
/// view, so that two views seem to read each other. Such views keep their order.
pub fn order(views: Vec<ViewDefinition>) -> Vec<ViewDefinition> {
    let names: Vec<_> = views.iter().map(|view| qualified_name(&view.schema, &view.name)).collect();
    let by_name: HashMap<_, _> =
        names.iter().enumerate().map(|(index, name)| (name.as_str(), index)).collect();
    let reads: Vec<Vec<usize>> = views.iter().map(|view| mentioned(&view.definition, &by_name)).collect();

    let mut order = Vec::with_capacity(views.len());
    let mut seen = vec![false; views.len()];
    for index in 0..views.len() {
        visit(index, &reads, &mut seen, &mut order);
    }
    let mut views: Vec<_> = views.into_iter().map(Some).collect();
    order.into_iter().filter_map(|index| views.get_mut(index)?.take()).collect()
}

/// Appends a view after all views that it reads. The function uses its own stack and no recursion, because
/// chains of views may be long.
fn visit(first: usize, reads: &[Vec<usize>], seen: &mut [bool], order: &mut Vec<usize>) {
    if std::mem::replace(&mut seen[first], true) {
        return;
    }
    let mut stack = vec![(first, 0)];
    while let Some((view, next)) = stack.pop() {
        let Some(&read) = reads[view].get(next) else {
            order.push(view);
            continue;
        };
        stack.push((view, next + 1));
        if !std::mem::replace(&mut seen[read], true) {
            stack.push((read, 0));
        }
    }
}

/// Returns the listed views whose names occur in a definition.
fn mentioned(definition: &str, by_name: &HashMap<&str, usize>) -> Vec<usize> {
    let bounds: Vec<_> = name_bounds(definition);
    let mut found = Vec::new();
    for pair in bounds.windows(2) {
        let [(from, middle), (next, to)] = *pair else { continue };
        let adjoin = definition.get(middle..next) == Some(".");
        if let Some(&index) = definition.get(from..to).filter(|_| adjoin).and_then(|name| by_name.get(name)) {
            found.push(index);
        }
    }
    found
}

/// Returns the start and end of each name in backquotes.
fn name_bounds(text: &str) -> Vec<(usize, usize)> {
    let mut bounds = Vec::new();
    let mut quotes = text.match_indices('`').map(|(index, _)| index).peekable();
    while let Some(from) = quotes.next() {
        let mut to = quotes.next();
        // Two backquotes in a row stand for one backquote within the name.
        while let Some(end) = to.filter(|end| quotes.peek() == Some(&(end + 1))) {
            let _ = (end, quotes.next());
            to = quotes.next();
        }
        bounds.extend(to.map(|to| (from, to + 1)));
    }
    bounds
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn view(name: &str, definition: &str) -> ViewDefinition {
        ViewDefinition { schema: "s".into(), name: name.into(), definition: definition.into() }
    }

    fn names(views: Vec<ViewDefinition>) -> Vec<String> {
        order(views).into_iter().map(|view| view.name).collect()
    }

    #[test]
    fn each_view_follows_the_views_that_it_reads() {
        let views = vec![
            view("a", "select `s`.`b`.`x` AS `x` from (`s`.`b` join `s`.`it``s`)"),
            view("b", "select 1 from `s`.`c`, `other`.`a`"),
            view("it`s", "select `c`.`x` from `s`.`c` `c`"),
            view("c", "select 1 from `s`.`table`"),
        ];
        assert_eq!(names(views), ["c", "b", "it`s", "a"]);
    }

    #[test]
    fn an_apparent_cycle_loses_no_view() {
        let views = vec![view("a", "select '`s`.`b`' from `s`.`t`"), view("b", "select * from `s`.`a`")];
        assert_eq!(names(views).len(), 2);
    }

    proptest! {
        #[test]
        fn any_tree_of_views_is_sorted(parents in prop::collection::vec(any::<prop::sample::Index>(), 1..40)) {
            // Each view reads a view that is later in the list. The last view reads no other view.
            let count = parents.len();
            let views: Vec<_> = parents.iter().enumerate().map(|(index, parent)| {
                let rest = count - index - 1;
                let definition = match rest {
                    0 => "select 1".to_owned(),
                    _ => format!("select * from `s`.`v{}`", index + 1 + parent.index(rest)),
                };
                view(&format!("v{index}"), &definition)
            }).collect();
            let ordered = order(views.clone());
            prop_assert_eq!(ordered.len(), count);
            for (place, one) in ordered.iter().enumerate() {
                let later = &ordered[place + 1..];
                let reads = |other: &ViewDefinition| one.definition.ends_with(&qualified_name("s", &other.name));
                prop_assert!(!later.iter().any(reads), "{} precedes a view that it reads", one.name);
            }
        }

        #[test]
        fn no_text_causes_a_panic(text in ".{0,60}") {
            order(vec![view("a", &text), view("b", &text)]);
        }
    }
}

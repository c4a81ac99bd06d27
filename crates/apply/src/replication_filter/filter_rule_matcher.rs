//! Compiles filter rules, and caches their result for each table.

use std::collections::hash_map::Entry;
use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::table_name_pattern::{Pattern, PatternPart, fold};
use super::{FilterError, FilterSet, Operation, Rewrite, Rule};

/// The maximum number of cached tables. When it is reached, the cache is cleared.
const TABLES_MAX: usize = 65_536;

/// A set of [`Operation`]s, one bit for each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Operations(u8);

impl Operations {
    const ALL: Self = Self(0b1111);

    fn of(operations: &[Operation]) -> Self {
        if operations.is_empty() {
            return Self::ALL;
        }
        Self(operations.iter().fold(0, |bits, operation| bits | Self::bit(*operation)))
    }

    fn bit(operation: Operation) -> u8 {
        match operation {
            Operation::Insert => 0b0001,
            Operation::Update => 0b0010,
            Operation::Delete => 0b0100,
            Operation::Ddl => 0b1000,
        }
    }

    fn contains(self, operation: Operation) -> bool {
        self.0 & Self::bit(operation) != 0
    }

    fn covers(self, other: Self) -> bool {
        other.0 & !self.0 == 0
    }
}

/// What the filters decide for a change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FilterRoute {
    /// The change is applied under its own name.
    Keep,
    /// The change is excluded.
    Drop,
    /// The change is applied to another table.
    Rename {
        /// The database on the target.
        schema: Arc<str>,
        /// The table on the target.
        table: Arc<str>,
    },
}

/// What the filters decide for the operations on one table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableRoute {
    kept: Operations,
    renamed: Option<(Arc<str>, Arc<str>)>,
}

impl TableRoute {
    /// Returns the decision for `operation`.
    pub fn route(&self, operation: Operation) -> FilterRoute {
        match &self.renamed {
            _ if !self.kept.contains(operation) => FilterRoute::Drop,
            Some((schema, table)) => FilterRoute::Rename { schema: schema.clone(), table: table.clone() },
            None => FilterRoute::Keep,
        }
    }

    /// Returns whether `operation` is applied.
    pub fn keeps(&self, operation: Operation) -> bool {
        self.kept.contains(operation)
    }

    /// Returns the database and table on the target, if these names differ from the names on the source.
    pub fn renamed(&self) -> Option<(&str, &str)> {
        self.renamed.as_ref().map(|(schema, table)| (&**schema, &**table))
    }
}

#[derive(Debug, Clone)]
struct CompiledRule {
    text: String,
    pattern: Pattern,
    operations: Operations,
}

impl CompiledRule {
    fn of(rule: &Rule, ignore_case: bool) -> Result<Self, FilterError> {
        let pattern = Pattern::parse(&rule.tables, ignore_case)?;
        Ok(Self { text: rule.tables.clone(), pattern, operations: Operations::of(&rule.operations) })
    }

    /// Returns whether this rule certainly matches everything that `pattern` matches.
    fn covers(&self, pattern: &Pattern, operations: Operations) -> bool {
        let covers = |own: &PatternPart, other: &PatternPart| {
            own.is_all() || own == other || other.name().is_some_and(|name| own.matches(name))
        };
        self.operations.covers(operations)
            && covers(&self.pattern.schema, &pattern.schema)
            && covers(&self.pattern.table, &pattern.table)
    }
}

/// A validated and compiled [`FilterSet`].
#[derive(Debug, Clone, Default)]
pub struct Filters {
    include: Vec<CompiledRule>,
    exclude: Vec<CompiledRule>,
    tables: FxHashMap<(String, String), (Arc<str>, Arc<str>)>,
    schemas: FxHashMap<String, Arc<str>>,
    ignore_case: bool,
}

impl FilterSet {
    /// Validates and compiles the rules.
    ///
    /// # Errors
    /// Invalid patterns; rules that contradict each other or have no effect; two rewrites of the same name,
    /// or to the same name.
    pub fn compile(&self) -> Result<Filters, FilterError> {
        let ready = |rules: &[Rule]| -> Result<Vec<_>, _> {
            rules.iter().map(|rule| CompiledRule::of(rule, self.ignore_case)).collect()
        };
        let mut filters = Filters {
            include: ready(&self.include)?,
            exclude: ready(&self.exclude)?,
            ignore_case: self.ignore_case,
            ..Filters::default()
        };
        filters.check_rules()?;
        for (place, rewrite) in self.rewrite.iter().enumerate() {
            filters.add_rewrite(rewrite, &self.rewrite[..place])?;
        }
        Ok(filters)
    }
}

impl Filters {
    /// Returns whether all tables are applied under their own names.
    pub fn is_empty(&self) -> bool {
        self.include.is_empty()
            && self.exclude.is_empty()
            && self.tables.is_empty()
            && self.schemas.is_empty()
    }

    /// Returns what the filters decide for a table.
    pub fn table(&self, schema: &str, table: &str) -> TableRoute {
        let (schema_folded, table_folded) = (fold(schema, self.ignore_case), fold(table, self.ignore_case));
        let matched = |rules: &[CompiledRule]| {
            let matching = rules.iter().filter(|rule| rule.pattern.matches(&schema_folded, &table_folded));
            matching.fold(0, |bits, rule| bits | rule.operations.0)
        };
        let included = if self.include.is_empty() { Operations::ALL.0 } else { matched(&self.include) };
        TableRoute {
            kept: Operations(included & !matched(&self.exclude)),
            renamed: self.renamed(schema_folded.into_owned(), table_folded.into_owned(), table),
        }
    }

    /// Returns what the filters decide for an operation on a table, without the cache of [`Router`].
    pub fn route(&self, schema: &str, table: &str, operation: Operation) -> FilterRoute {
        self.table(schema, table).route(operation)
    }

    /// Returns whether any operation on a table of the schema is applied, and the new name of the whole
    /// schema if it is renamed.
    pub(super) fn schema(&self, schema: &str) -> (bool, Option<&Arc<str>>) {
        let folded = fold(schema, self.ignore_case);
        let ddl = |rule: &&CompiledRule| {
            rule.operations.contains(Operation::Ddl) && rule.pattern.schema.matches(&folded)
        };
        let included = self.include.is_empty() || self.include.iter().any(|rule| ddl(&rule));
        let excluded = self.exclude.iter().filter(ddl).any(|rule| rule.pattern.table.is_all());
        (included && !excluded, self.schemas.get(&*folded))
    }

    /// Returns whether a rewrite renames a single table of the schema.
    pub(super) fn has_renamed_tables(&self, schema: &str) -> bool {
        let folded = fold(schema, self.ignore_case);
        self.tables.keys().any(|(schema, _)| *schema == *folded)
    }

    fn renamed(&self, schema: String, table: String, table_as_is: &str) -> Option<(Arc<str>, Arc<str>)> {
        if self.tables.is_empty() && self.schemas.is_empty() {
            return None;
        }
        let whole = self.schemas.get(&schema).map(|to| (to.clone(), Arc::from(table_as_is)));
        self.tables.get(&(schema, table)).cloned().or(whole)
    }

    fn check_rules(&self) -> Result<(), FilterError> {
        for rule in &self.include {
            if let Some(out) = self.exclude.iter().find(|out| out.covers(&rule.pattern, rule.operations)) {
                return Err(FilterError::Rules {
                    first: rule.text.clone(),
                    second: out.text.clone(),
                    reason: "the second excludes everything that the first includes; remove one of them",
                });
            }
        }
        Ok(())
    }

    fn add_rewrite(&mut self, rewrite: &Rewrite, earlier: &[Rewrite]) -> Result<(), FilterError> {
        let wrong = |reason: &str| FilterError::Rewrite {
            from: rewrite.from.clone(),
            to: rewrite.to.clone(),
            reason: reason.to_owned(),
        };
        let from = Pattern::parse(&rewrite.from, self.ignore_case)?;
        let to = Pattern::parse(&rewrite.to, false)?;
        if from == Pattern::parse(&rewrite.to, self.ignore_case)? {
            return Err(wrong("the rewrite changes nothing"));
        }
        if self.exclude.iter().any(|out| out.covers(&from, Operations::ALL)) {
            return Err(wrong("the rules exclude all tables of the rewrite"));
        }
        if !self.include.is_empty() && !self.include.iter().any(|rule| may_meet(&rule.pattern, &from)) {
            return Err(wrong("the rules include no table of the rewrite"));
        }
        // Target names are compared in the same letter case as rules: with lower_case_table_names, names that
        // differ only in case are equal.
        for other in earlier {
            let read = |text: &str| Pattern::parse(text, self.ignore_case);
            if read(&other.from)? == from {
                return Err(wrong("another rewrite has the same source name"));
            }
            if read(&other.to)? == read(&rewrite.to)? {
                return Err(wrong(
                    "another rewrite has the same target name, and two tables cannot be written to one",
                ));
            }
        }
        let kinds = "a rewrite must rename one table (a.b to c.d) or one schema (a.* to c.*)";
        match (from.schema.name(), from.table.name(), to.schema.name(), to.table.name()) {
            (Some(schema), Some(table), Some(to_schema), Some(to_table)) => {
                self.tables.insert((schema.into(), table.into()), (to_schema.into(), to_table.into()));
            }
            (Some(schema), None, Some(to_schema), None) if from.table.is_all() && to.table.is_all() => {
                self.schemas.insert(schema.into(), to_schema.into());
            }
            _ => return Err(wrong(kinds)),
        }
        Ok(())
    }
}

/// Returns whether a rule may match some table that a rewrite of `from` renames.
fn may_meet(rule: &Pattern, from: &Pattern) -> bool {
    let meets = |rule: &PatternPart, from: &PatternPart| from.name().is_none_or(|name| rule.matches(name));
    meets(&rule.schema, &from.schema) && meets(&rule.table, &from.table)
}

/// [`Filters`] with a cache of tables. It needs one lookup for each table map, and none for each row.
#[derive(Debug)]
pub struct Router {
    filters: Filters,
    tables: FxHashMap<String, FxHashMap<String, Arc<TableRoute>>>,
    /// For each table of the target, by its name on the target: the source table that is written to it.
    sources: FxHashMap<(String, String), (String, String)>,
    remembered: usize,
}

impl Router {
    /// Returns a router with an empty cache.
    pub fn new(filters: Filters) -> Self {
        Self { filters, tables: FxHashMap::default(), sources: FxHashMap::default(), remembered: 0 }
    }

    /// Returns the compiled filters.
    pub fn filters(&self) -> &Filters {
        &self.filters
    }

    /// Returns what the filters decide for a table.
    ///
    /// # Errors
    /// [`FilterError::Clash`] if another source table is written to the same target table.
    pub fn table(&mut self, schema: &str, table: &str) -> Result<Arc<TableRoute>, FilterError> {
        if let Some(route) = self.tables.get(schema).and_then(|tables| tables.get(table)) {
            return Ok(route.clone());
        }
        if self.remembered >= TABLES_MAX {
            *self = Self::new(std::mem::take(&mut self.filters));
        }
        let route = Arc::new(self.filters.table(schema, table));
        if route.kept != Operations::default() {
            self.claim(schema, table, &route)?;
        }
        self.tables.entry(schema.to_owned()).or_default().insert(table.to_owned(), route.clone());
        self.remembered += 1;
        Ok(route)
    }

    fn claim(&mut self, schema: &str, table: &str, route: &TableRoute) -> Result<(), FilterError> {
        if self.filters.tables.is_empty() && self.filters.schemas.is_empty() {
            return Ok(());
        }
        let ignore_case = self.filters.ignore_case;
        let named = |(schema, table): (&str, &str)| {
            (fold(schema, ignore_case).into_owned(), fold(table, ignore_case).into_owned())
        };
        let source = named((schema, table));
        let target = named(route.renamed().unwrap_or((schema, table)));
        match self.sources.entry(target) {
            Entry::Vacant(entry) => {
                entry.insert(source);
            }
            Entry::Occupied(entry) if *entry.get() != source => {
                let text = |(schema, table): &(String, String)| format!("{schema}.{table}");
                return Err(FilterError::Clash {
                    first: text(entry.get()),
                    second: text(&source),
                    target: text(entry.key()),
                });
            }
            Entry::Occupied(_) => {}
        }
        Ok(())
    }
}

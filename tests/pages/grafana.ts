// What Grafana itself publishes of its dashboards: the types of its package on npm, of the release whose image the role
// runs. JSON has words where they have enumerations.
import type { Dashboard, DataQuery, FieldConfigSource, Panel, RowPanel } from '@grafana/schema';
import type { Options as Stat } from '@grafana/schema/dist/esm/raw/composable/stat/panelcfg/x/StatPanelCfg_types.gen';
import type { FieldConfig as Curve, Options as TimeSeries } from '@grafana/schema/dist/esm/raw/composable/timeseries/panelcfg/x/TimeSeriesPanelCfg_types.gen';

type Plain<T> = T extends string ? `${T}`
  : T extends (infer One)[] ? Plain<One>[]
  : T extends object ? { [Key in keyof T]: Plain<T[Key]> }
  : T;

// The keys of ours out of `dataquery.ts` of @grafana/prometheus 13.2.3: that package brings the whole editor with it.
interface Query extends DataQuery {
  expr: string;
  legendFormat?: string;
  instant?: boolean;
  range?: boolean;
}

// Grafana's own panel knows neither what is asked nor a kind's options; they are checked by the kind's own types.
type Shown<Kind extends string, Options, Custom> = Omit<Panel, 'type' | 'options' | 'targets' | 'fieldConfig'> & {
  type: Kind;
  options: Options;
  targets: Query[];
  fieldConfig: FieldConfigSource<Custom>;
};

export type Board = Plain<Omit<Dashboard, 'panels'> & {
  panels: (Shown<'stat', Stat, Record<string, never>> | Shown<'timeseries', TimeSeries, Curve> | RowPanel)[];
}>;
